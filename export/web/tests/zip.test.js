import assert from "node:assert/strict";
import { test } from "node:test";

import { crc32, readDirectory } from "../src/zip.js";

test("a sum that everybody knows", () => {
  assert.equal(crc32(new TextEncoder().encode("123456789")), 0xcbf43926);
});

test("what is no archive", () => {
  for (const length of [0, 5, 22, 100_000]) {
    assert.throws(() => readDirectory(new Uint8Array(length)), /no archive at its end/);
  }
});
