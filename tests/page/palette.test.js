import assert from "node:assert/strict";
import { test } from "node:test";
import { contrast, inkOn, lighter, makeColours, rgbOf } from "../../interp/pages/assets/palette.js";

const colours = makeColours({
  ramps: {
    weight: [
      [0, 0, 0],
      [100, 200, 50],
      [200, 0, 250],
    ],
  },
  colours: { blue: "#0072b2" },
  glyphs: { " ": "␣", "\n": "⏎" },
  units: { loss: "nats" },
});

test("a ramp is straight between its stops, and ends at its ends", () => {
  assert.deepEqual(colours.ramp("weight", 0), [0, 0, 0]);
  assert.deepEqual(colours.ramp("weight", 0.25), [50, 100, 25]);
  assert.deepEqual(colours.ramp("weight", 0.75), [150, 100, 150]);
  assert.deepEqual(colours.ramp("weight", 1), [200, 0, 250]);
  assert.deepEqual(colours.ramp("weight", 7), [200, 0, 250]);
});

test("colours, glyphs and units are the table's, and what is not in it stays", () => {
  assert.equal(colours.colour("blue"), "#0072b2");
  assert.equal(colours.colour("#123456"), "#123456");
  assert.equal(colours.visible(" "), "␣");
  assert.equal(colours.visible("é"), "é");
  assert.equal(colours.visible("\u2028"), "\\u2028");
  assert.equal(colours.visible("\0"), "\\u0000");
  assert.equal(colours.unit("loss"), "nats");
  assert.equal(colours.unit("mine"), "");
});

test("black on white has a contrast of 21, and texts have at least 4.5 on any colour", () => {
  assert.equal(contrast([0, 0, 0], [255, 255, 255]), 21);
  for (let grey = 0; grey < 256; grey += 5) {
    const rgb = [grey, grey, grey];
    assert.ok(contrast(rgb, inkOn(rgb) === "#000" ? [0, 0, 0] : [255, 255, 255]) >= 4.5);
  }
});

test("a colour is made lighter only as far as a dark page needs", () => {
  assert.equal(lighter("#e69f00", [22, 22, 22]), "rgb(230,159,0)");
  const rgb = lighter("#542788", [22, 22, 22]).match(/\d+/g).map(Number);
  assert.ok(contrast(rgb, [22, 22, 22]) >= 3.5);
  assert.ok(contrast(rgbOf("#542788"), [22, 22, 22]) < 3.5);
});
