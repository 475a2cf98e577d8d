import assert from "node:assert/strict";
import { test } from "node:test";

import { searchOf } from "../src/about.js";

test("of a search its kind, and what people change", () => {
  const search = "BeamSearch(beam_width=5, n_best=5, length_penalty=1.2, forbidden=(), x=None)";
  assert.equal(searchOf(search), "BeamSearch, beam_width=5, length_penalty=1.2");
  assert.equal(searchOf("GreedySearch(max_length=None)"), "GreedySearch");
  assert.equal(searchOf(undefined), "");
});
