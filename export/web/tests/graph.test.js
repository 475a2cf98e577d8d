import assert from "node:assert/strict";
import { test } from "node:test";

const found = await import("../src/graph.js").catch(() => null);
const skip = found ? false : "npm ci has not been run";

/** What LiteRT makes of a file, as far as it is looked at. */
function compiled(shape, outputs) {
  return {
    isFreed: false,
    getInputDetails: () => [{ name: "source", shape }],
    getOutputDetails: () => outputs.map((name) => ({ name })),
    delete() {
      this.isFreed = true;
    },
  };
}

const OUTPUTS = ["ids", "lengths", "scores", "weights", "token_log_probs"];

test("what is no translator is refused, and freed", { skip }, () => {
  const others = {
    "maps source to x": compiled([1, 9], ["x"]),
    "takes 8 tokens, and says 9": compiled([1, 8], OUTPUTS),
  };
  for (const [reason, model] of Object.entries(others)) {
    assert.throws(() => found.Graph.of(model, 9), new RegExp(reason));
    assert.ok(model.isFreed);
  }
  const model = compiled([1, 9], OUTPUTS);
  found.Graph.of(model, 9).delete();
  assert.ok(model.isFreed);
});
