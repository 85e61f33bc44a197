import assert from "node:assert/strict";
import { test } from "node:test";
import { told } from "../../interp/pages/assets/explain.js";
import { shared } from "../../interp/pages/assets/marks.js";

const series = (values) => ({ values, low: null, high: null });
const lines = (x, y) => ({
  mark: "Lines",
  x,
  series: [series(y)],
  spans: [],
  y_low: null,
  y_high: null,
  zero: false,
  x_scale: "linear",
  y_scale: "linear",
});

test("panels that share have the limits of all", () => {
  const limits = shared([lines([1, 2], [0, 5]), lines([0, 1], [-3, 1])]);
  assert.deepEqual(limits, { x: [0, 2], y: [-3, 5] });
});

test("limits that a mark gives hold", () => {
  assert.deepEqual(shared([{ ...lines([1, 2], [0.2, 0.5]), y_low: 0, y_high: 1 }]).y, [0, 1]);
});

test("after the last position nothing is known to come", () => {
  const passage = { tokens: [0, 1], glyph: (token) => "ab"[token] };
  assert.match(told(passage, 0), /position 0 \(a\) predicts position 1, which is b/);
  assert.match(told(passage, 1), /position 1 \(b\) predicts what comes after the passage/);
});
