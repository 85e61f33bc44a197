import assert from "node:assert/strict";
import { test } from "node:test";
import { addressOf, readAddress } from "../../interp/pages/assets/state.js";

const HEADS = ["L0.H0", "L0.H1"];

test("an address gives back what was selected", () => {
  const address = addressOf({ pos: 7, head: "L0.H1", nPos: 10 });
  assert.equal(address, "#pos=7&head=L0.H1");
  assert.deepEqual(readAddress(address, HEADS, 10), { pos: 7, head: "L0.H1" });
});

test("an address that says what is not there selects what is near, or nothing", () => {
  assert.deepEqual(readAddress("#pos=99&head=L9.H9", HEADS, 10), { pos: 9 });
  assert.deepEqual(readAddress("#pos=two", HEADS, 10), {});
  assert.deepEqual(readAddress("#text", HEADS, 10), {});
  assert.equal(addressOf({ pos: 0, head: "", nPos: 0 }), "#");
});
