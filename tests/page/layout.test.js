import assert from "node:assert/strict";
import { test } from "node:test";
import {
  cells,
  overlaps,
  placeNames,
  spread,
  thin,
  wrap,
} from "../../interp/pages/assets/layout.js";

test("texts that would touch are left out: zero stays, then the outermost", () => {
  assert.deepEqual(thin([-1, 0, 1], [0, 50, 100], [20, 20, 20]), [0, 1, 2]);
  assert.deepEqual(thin([-1, 0, 1], [0, 10, 20], [20, 20, 20]), [1]);
  assert.deepEqual(thin([1, 2, 3, 4], [0, 10, 20, 60], [16, 16, 16, 16]), [0, 3]);
});

test("tags keep their order and their distance, within limits", () => {
  const out = spread([50, 50, 51, 10], 12, 0, 80);
  assert.equal(out[3], 10);
  assert.ok(out[1] - out[0] >= 12 && out[2] - out[1] >= 12);
  assert.ok(Math.max(...out) <= 80);
  assert.deepEqual(spread([79, 80], 12, 0, 80), [68, 80]);
});

test("names cover neither points nor names, nor leave the axes", () => {
  const room = { left: 0, right: 200, top: 0, bottom: 100 };
  const points = [
    { x: 100, y: 50, width: 40 },
    { x: 112, y: 50, width: 40 },
    { x: 195, y: 25, width: 40 },
    { x: 100, y: 53, width: 400 },
  ];
  const dots = points.map(({ x, y }) => ({ left: x - 4, right: x + 4, top: y - 4, bottom: y + 4 }));
  const places = placeNames(points, dots, room, 11);
  assert.equal(places[3], null);
  const boxes = places.flatMap((at, i) =>
    at ? [{ left: at.x, right: at.x + points[i].width, top: at.y - 5.5, bottom: at.y + 5.5 }] : [],
  );
  assert.equal(boxes.length, 3);
  boxes.forEach((box, i) => {
    assert.ok(box.left >= 0 && box.right <= 200 && box.top >= 0 && box.bottom <= 100);
    assert.ok(![...dots, ...boxes.slice(i + 1)].some((other) => overlaps(box, other)));
  });
});

test("a text is broken between words", () => {
  const letters = (text) => text.length;
  assert.deepEqual(wrap("one two three", 7, letters), ["one two", "three"]);
  assert.deepEqual(wrap("incomprehensible", 7, letters), ["incomprehensible"]);
});

test("a gap stands before each break but not before the first cell", () => {
  assert.deepEqual(cells(4, 10, [0, 2], 5), { starts: [0, 10, 25, 35], length: 45 });
});
