import assert from "node:assert/strict";
import { test } from "node:test";

import { news, truncationNote } from "../src/notes.js";

test("every line that was cut is named", () => {
  assert.equal(truncationNote([]), "");
  assert.equal(truncationNote([false, false]), "");
  assert.match(truncationNote([true]), /^This is longer than .*: only its beginning/);
  assert.match(truncationNote([false, true]), /^Line 2 is longer than .*: only its beginning/);
  assert.match(truncationNote([true, false, true]), /^Lines 1 and 3 are longer .* their beginning/);
  assert.match(truncationNote(Array(9).fill(true)), /^Lines 1, 2, 3, 4, 5, and 4 more are /);
});

test("what is new is announced, wherever it stands", () => {
  assert.equal(news(["a", "b"], []), "a\nb");
  assert.equal(news(["a", "c", ""], ["a", "b"]), "c");
  assert.equal(news(["x", "a"], ["a"]), "x");
  assert.equal(news(["b"], ["a", "b"]), "");
});
