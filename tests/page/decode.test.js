import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateSync } from "node:zlib";
import { decode, decodeAll, joinPlanes } from "../../interp/pages/assets/decode.js";

// all first bytes of the numbers, then all second ones …, zlib, base64: as Python writes them
const packed = (bytes, size) => {
  const n = bytes.length / size;
  const planes = bytes.map((_, at) => bytes[(at % n) * size + Math.floor(at / n)]);
  return { planes: size, zlib: deflateSync(Buffer.from(planes)).toString("base64") };
};

test("small arrays are lists, in which null is not a number and true is 1", async () => {
  const field = { dtype: "<f8", shape: [2, 2], values: [1.5, null, -3, true] };
  assert.deepEqual([...(await decode(field))], [1.5, NaN, -3, 1]);
});

test("planes of bytes are numbers again", () => {
  assert.deepEqual([...joinPlanes(Uint8Array.of(1, 3, 5, 2, 4, 6), 2)], [1, 2, 3, 4, 5, 6]);
});

test("large arrays come from the bytes of each kind of number", async () => {
  const f4 = [0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0, 0, 0, 0xc0, 0x7f]; // 1, -2.5, NaN
  const floats = await decode({ dtype: "<f4", shape: [3], ...packed(f4, 4) });
  assert.deepEqual([...floats], [1, -2.5, NaN]);
  const f8 = [0, 0, 0, 0, 0, 0, 0xf8, 0x3f]; // 1.5
  assert.deepEqual([...(await decode({ dtype: "<f8", shape: [1], ...packed(f8, 8) }))], [1.5]);
  const i8 = [5, 0, 0, 0, 0, 0, 0, 0, ...Array(8).fill(255)]; // 5, -1
  assert.deepEqual([...(await decode({ dtype: "<i8", shape: [2], ...packed(i8, 8) }))], [5, -1]);
  assert.deepEqual([...(await decode({ dtype: "|b1", shape: [2], ...packed([1, 0], 1) }))], [1, 0]);
});

test("steps are multiplied by their quantum", async () => {
  const steps = [1, 0, 0xfe, 0xff, 0xff, 0x7f]; // 1, -2, 32767
  const field = { dtype: "<f4", shape: [3], quantum: 0.5, ...packed(steps, 2) };
  assert.deepEqual([...(await decode(field))], [0.5, -1, 16383.5]);
});

test("arrays are decoded however deep in a mark they are", async () => {
  const array = { dtype: "<f8", shape: [1], values: [7] };
  const given = { mark: "Panels", marks: [{ values: array, low: null, ticks: [[0, "0"]] }] };
  const { marks } = await decodeAll(given);
  assert.deepEqual([...marks[0].values], [7]);
  assert.equal(marks[0].low, null);
  assert.deepEqual(marks[0].ticks, [[0, "0"]]);
});
