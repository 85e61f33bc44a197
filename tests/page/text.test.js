import assert from "node:assert/strict";
import { test } from "node:test";
import {
  cellsOf,
  compact,
  csvOf,
  distinct,
  number,
  records,
  short,
  signed,
} from "../../interp/pages/assets/text.js";

test("cells with commas, quotes or ends of lines are quoted, null is empty", () => {
  const table = {
    columns: ["a,b", "c"],
    rows: [
      ['say "x"', null],
      ["two\nlines", 0.5],
    ],
  };
  assert.equal(csvOf(table), '"a,b",c\n"say ""x""",\n"two\nlines",0.5\n');
});

test("a map's cells are rows, equal columns told apart by number, nothing is null", () => {
  const mark = {
    mark: "HeatMap",
    rows: ["L0.H0", "L0.H1"],
    columns: ["a", "a"],
    values: Float64Array.of(1, 2, NaN, 4),
    label: "logits",
  };
  assert.deepEqual(cellsOf(/** @type {any} */ (mark)), {
    columns: ["row", "number", "column", "logits"],
    rows: [
      ["L0.H0", 0, "a", 1],
      ["L0.H0", 1, "a", 2],
      ["L0.H1", 0, "a", null],
      ["L0.H1", 1, "a", 4],
    ],
  });
});

test("rows are objects by column, and there are none without a table", () => {
  const table = { columns: ["a", "b"], rows: [[1, "x"]] };
  assert.deepEqual(records(table), [{ a: 1, b: "x" }]);
  assert.deepEqual(records(null), []);
});

test("numbers have true minus signs, and a dash where there is none", () => {
  assert.equal(signed(-0.5), "−0.50");
  assert.equal(signed(2, 1), "+2.0");
  assert.equal(number(-1, 1), "−1.0");
  assert.equal(number(null), "–");
  assert.equal(number(NaN), "–");
  assert.equal(compact(-0.00012345678, 3), "−0.000123");
});

test("numbers on an axis have digits enough to differ", () => {
  assert.deepEqual(distinct([0, 0.5, 1]), ["0", "0.5", "1"]);
  assert.deepEqual(distinct([3.401725, 3.40173]), ["3.401725", "3.40173"]);
});

test("long names are cut", () => {
  assert.equal(short("L0.H1"), "L0.H1");
  assert.equal(short("x".repeat(40), 5), "xxxx…");
});
