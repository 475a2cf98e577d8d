import assert from "node:assert/strict";
import { test } from "node:test";

import { crc32 } from "../src/zip.js";

const FOLDER = "https://example.org/site/";
const bytes = (/** @type {string} */ text) => new TextEncoder().encode(text);

/** A graph with an archive of one stored file behind it, as Python's `zipfile` writes it. */
function model(graph, metadata) {
  const name = bytes("keras_luong.json");
  const content = bytes(JSON.stringify(metadata));
  const sizes = new Uint32Array([crc32(content), content.length, content.length]);
  const local = Buffer.alloc(30);
  local.writeUInt32LE(0x04034b50, 0);
  Buffer.from(sizes.buffer).copy(local, 14);
  local.writeUInt16LE(name.length, 26);
  const entry = Buffer.alloc(46);
  entry.writeUInt32LE(0x02014b50, 0);
  Buffer.from(sizes.buffer).copy(entry, 16);
  entry.writeUInt16LE(name.length, 28);
  entry.writeUInt32LE(graph.length, 42);
  const end = Buffer.alloc(22);
  end.writeUInt32LE(0x06054b50, 0);
  end.writeUInt16LE(1, 10);
  end.writeUInt32LE(entry.length + name.length, 12);
  end.writeUInt32LE(graph.length + local.length + name.length + content.length, 16);
  return Buffer.concat([graph, local, name, content, entry, name, end]);
}

const GRAPH = Buffer.alloc(1000, "graph");
const MODEL = model(GRAPH, { format: 1, graph_crc32: crc32(GRAPH) });

/** What the server has, and the one cache; `null` is a server that cannot be reached. */
const served = new Map();
const kept = new Map();
/** @type {Record<string, (event: any) => void>} */
const handlers = {};

const cache = {
  match: async ({ url }) => kept.get(url)?.clone(),
  put: async ({ url }, response) => void kept.set(url, response),
  keys: async () => [...kept.keys()].map((url) => ({ url })),
  delete: async ({ url }) => kept.delete(url),
};

Object.assign(globalThis, {
  PAGE_SUMS: {
    "": crc32(bytes("page")),
    "page.js": crc32(bytes("script")),
    "litert-9/x.wasm": crc32(bytes("wasm")),
  },
  PAGE_HEADERS: { "X-Content-Type-Options": "nosniff" },
  LITERT_VERSION: "9",
  location: { href: `${FOLDER}service_worker.js`, origin: "https://example.org" },
  caches: { open: async () => cache },
  self: {
    addEventListener: (name, handler) => (handlers[name] = handler),
    skipWaiting: async () => {},
    clients: { claim: async () => {} },
  },
  fetch: async (asked) => {
    const content = served.get(asked.url ?? asked);
    if (content === null) throw new TypeError("there is no network");
    return content ? new Response(content) : new Response("", { status: 404 });
  },
});
await import("../src/service_worker.js");

/** What an event leads to, once all that it waits for is done. */
async function sent(name, request) {
  const waits = [];
  let answer;
  handlers[name]({
    request,
    waitUntil: (x) => waits.push(x),
    respondWith: (x) => (answer = x),
  });
  const response = await answer;
  const content = response && new Uint8Array(await response.arrayBuffer());
  await Promise.all(waits);
  return content && { status: response.status, content: Buffer.from(content) };
}

const asked = (/** @type {string} */ name) =>
  sent("fetch", { url: FOLDER + name, method: "GET", mode: "no-cors" });
const have = (/** @type {Record<string, any>} */ files) => {
  for (const [name, x] of Object.entries(files)) served.set(FOLDER + name, x);
};

test("a release is kept as a whole or not at all", async () => {
  have({ "": bytes("page"), "page.js": bytes("scr") });
  await assert.rejects(sent("install"), /page.js is damaged/);
  assert.equal(kept.size, 0);
  have({ "page.js": bytes("script") });
  await sent("install");
  assert.deepEqual([...kept.keys()], [FOLDER, `${FOLDER}page.js`]);
});

test("what a server has of another release is shown and not kept", async () => {
  have({ "page.js": bytes("newer") });
  assert.equal(`${(await asked("page.js")).content}`, "newer");
  have({ "page.js": null });
  assert.equal(`${(await asked("page.js")).content}`, "script");
});

test("s8: half of a model does not take the place of a whole one", async () => {
  have({ "model.tflite": MODEL });
  await asked("model.tflite");
  const spoilt = [500, MODEL.indexOf("format")].map((place) => {
    const other = Buffer.from(MODEL);
    other[place] ^= 1;
    return other;
  });
  const half = MODEL.subarray(0, MODEL.length / 2);
  for (const other of [half, ...spoilt, bytes("<html>")]) {
    have({ "model.tflite": other });
    assert.equal((await asked("model.tflite")).content.compare(other), 0);
    have({ "model.tflite": null });
    assert.equal((await asked("model.tflite")).content.compare(MODEL), 0);
  }
  have({ "model.tflite": undefined });
  assert.equal((await asked("model.tflite")).status, 404);
  have({ "model.tflite": null });
  assert.equal((await asked("model.tflite")).content.compare(MODEL), 0);
});

test("w8: LiteRT's files are kept once they are whole", async () => {
  have({ "litert-9/x.wasm": bytes("was") });
  await asked("litert-9/x.wasm");
  have({ "litert-9/x.wasm": bytes("wasm") });
  await asked("litert-9/x.wasm");
  have({ "litert-9/x.wasm": null });
  assert.equal(`${(await asked("litert-9/x.wasm")).content}`, "wasm");
});
