import assert from "node:assert/strict";
import { test } from "node:test";

import { Client } from "../src/client.js";

/** What a browser tells of a worker: nothing of itself. */
class Silent extends EventTarget {
  postMessage() {}
  fail(message) {
    this.dispatchEvent(Object.assign(new Event("error"), { message }));
  }
  say(data) {
    this.dispatchEvent(new MessageEvent("message", { data }));
  }
}

test("a worker without a program says so, before it is asked and after", async () => {
  const worker = new Silent();
  const client = new Client(worker);
  const early = client.translate("a");
  worker.fail(undefined);
  await assert.rejects(early, /worker.js.*cannot be loaded/);
  await assert.rejects(client.translate("a"), /worker.js.*cannot be loaded/);
});

test("one that has said something may fail once", async () => {
  const worker = new Silent();
  const client = new Client(worker);
  const first = client.translate("a");
  worker.say({ id: 1, answer: ["A"] });
  assert.deepEqual(await first, ["A"]);
  const second = client.translate("b");
  worker.fail("no memory");
  await assert.rejects(second, /no memory/);
  const third = client.translate("c");
  worker.say({ id: 3, answer: ["C"] });
  assert.deepEqual(await third, ["C"]);
});
