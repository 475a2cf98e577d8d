/**
 * Translates off the page's own thread.
 *
 * Each message is `{id, open}` or `{id, translate}`; each is answered by `{id, answer}` or
 * `{id, error}`, in turn, and loading also by `{id, progress: [loaded, total]}`.
 */

import { download } from "./download.js";
import { loadRuntime } from "./graph.js";
import { Translator } from "./translator.js";

/**
 * @typedef {object} Opening
 * @property {string} name What the file is called.
 * @property {string} [url] Where it is,
 * @property {Blob} [file] or what it is.
 * @property {number} [threads] The cores that may be used, if the page is isolated from
 *   other origins; by default one.
 */

/** @type {Translator | undefined} */
let translator;
/** @type {Promise<unknown> | undefined} */
let runtime;
/** What is asked for is done in turn. */
let last = Promise.resolve();

/** @type {(message: any) => void} */
const post = (message) => self.postMessage(message);

self.addEventListener("message", ({ data }) => {
  last = last.then(() => answer(data));
});

/** @param {{id: number, open?: Opening, translate?: string | Uint8Array}} asked */
async function answer({ id, open, translate }) {
  try {
    const done = open ? opened(open, id) : translated(translate ?? "");
    post({ id, answer: await done });
  } catch (error) {
    post({ id, error: error instanceof Error ? error.message : String(error) });
  }
}

/**
 * @param {Opening} asked
 * @param {number} id
 */
async function opened({ name, url, file, threads: wanted = 1 }, id) {
  const threads = self.crossOriginIsolated ? wanted : 1;
  runtime ??= loadRuntime(threads > 1);
  runtime.catch(() => (runtime = undefined)); // another time it may be there
  const progress = (/** @type {number[]} */ ...bytes) => post({ id, progress: bytes });
  const content = file
    ? file.arrayBuffer().then((buffer) => new Uint8Array(buffer))
    : download(url ?? "", progress);
  const [bytes] = await Promise.all([content, runtime]);
  const next = await Translator.load(bytes, name, threads);
  translator?.delete();
  translator = next;
  const { metadata } = next.contents;
  return { metadata, unknown: next.unknown(), bytes: bytes.length, threads };
}

/** @param {string | Uint8Array} text */
async function translated(text) {
  if (!translator) throw new Error("There is no model yet.");
  return translator.translate(text);
}
