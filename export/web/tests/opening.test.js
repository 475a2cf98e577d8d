import assert from "node:assert/strict";
import { test } from "node:test";

import { openingOf } from "../src/opening.js";

test("what a file is called, whatever its address", () => {
  const names = {
    "models/a%20b.tflite?x#y": "a b.tflite",
    "100%.tflite": "100%.tflite",
    "http://[": "[",
    "models/": "models/",
  };
  for (const [url, name] of Object.entries(names)) assert.deepEqual(openingOf(url), { name, url });
  const file = new File([""], "mine.tflite");
  assert.deepEqual(openingOf(file), { name: "mine.tflite", file });
});
