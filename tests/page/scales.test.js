import assert from "node:assert/strict";
import { test } from "node:test";
import { evenly, extent, makeScale, nearZero } from "../../interp/pages/assets/scales.js";

const near = (a, b) => assert.ok(Math.abs(a - b) < 1e-9, `${a} is not ${b}`);

test("each scale goes from 0 to 1, and its middle is where its name says", () => {
  for (const [kind, low, high, middle] of [
    ["linear", 0, 10, 5],
    ["root", 0, 4, 1],
    ["root", -4, 4, 0],
    ["log", 1, 100, 10],
    ["log2", 1, 16, 4],
    ["symlog", -8, 8, 0],
  ]) {
    const scale = makeScale(kind, low, high, 0.01);
    near(scale.at(low), 0);
    near(scale.at(middle), 0.5);
    near(scale.at(high), 1);
  }
});

test("a symmetric logarithm is linear near zero, decades beyond, and odd", () => {
  const { at } = makeScale("symlog", -100, 100, 1);
  near(at(1) - at(0), 2 * (at(0.5) - at(0)));
  near(at(100) - at(10), at(10) - at(1));
  near(at(10) - at(0), at(0) - at(-10));
  near((at(1) - at(0)) / (at(10) - at(1)), 0.5 / 0.9); // matplotlib's linscale of half a decade
});

test("a scale that cannot be is linear", () => {
  near(makeScale("log", -1, 1).at(0), 0.5);
  near(makeScale("symlog", 0, 2, 0).at(1), 0.5);
});

test("one number alone stands in the middle", () => {
  near(makeScale("linear", 3, 3).at(3), 0.5);
  near(makeScale("linear", 0, 0).at(0), 0.5);
});

test("ticks are round and within the axis, with and without room about the data", () => {
  assert.deepEqual(evenly(0, 1, 4), [0, 0.25, 0.5, 0.75, 1]);
  assert.deepEqual(evenly(-0.3, 0.3, 3), [-0.2, 0, 0.2]);
  assert.deepEqual(makeScale("log", 1, 1000, 0, 0.03).ticks(5), [1, 10, 100, 1000]);
  assert.deepEqual(makeScale("log", 1, 20).ticks(5), [1, 2, 5, 10, 20]);
  assert.deepEqual(makeScale("log2", 0.25, 4, 0, 0.03).ticks(5), [0.25, 0.5, 1, 2, 4]);
  assert.deepEqual(makeScale("symlog", -1, 10, 0.1).ticks(5), [-1, -0.1, 0, 0.1, 1, 10]);
  const root = makeScale("root", -4, 4).ticks(5);
  assert.deepEqual(root, root.map((x) => (x === 0 ? 0 : -x)).reverse());
});

test("the extent passes over what is not a number", () => {
  assert.deepEqual(extent([[1, NaN, -2], null, [Infinity]]), [-2, 1]);
  assert.deepEqual(extent([[0, -1, 5, 2]], true), [2, 5]);
  assert.deepEqual(extent([]), [0, 1]);
});

test("only sizes that differ much need a symmetric logarithm, linear below their quarter", () => {
  assert.equal(nearZero([1, 2, 3, NaN, 0]), 0);
  assert.equal(nearZero([0.002, 0.02, -0.2, 0.02, 9]), 0.01);
});
