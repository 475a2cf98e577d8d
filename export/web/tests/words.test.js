import assert from "node:assert/strict";
import { test } from "node:test";

import { linksOf } from "../src/words.js";

test("attention to pieces is summed, from pieces averaged, and the ends are left out", () => {
  const { source, target, weights } = linksOf({
    sourceTokens: ["\u2581dog", "s", "</s>"],
    tokens: ["\u2581Hun", "de", "\u2581!", "</s>"],
    alignment: [
      [0.5, 0.3, 0.2],
      [0.1, 0.1, 0.8],
      [0, 0.25, 0.75],
      [0, 0, 1],
    ],
  });
  assert.deepEqual([source, target], [["dogs"], ["Hunde", "!"]]);
  assert.ok(Math.abs(weights[0][0] - 0.5) < 1e-9);
  assert.deepEqual(weights[1], [0.25]);
});

test("nothing has no words", () => {
  const nothing = linksOf({ sourceTokens: [], tokens: [], alignment: [] });
  assert.deepEqual(nothing, { source: [], target: [], weights: [] });
});
