/**
 * Keeps the page and its model, so that both work without a network; and gives every answer
 * the headers that a plain file server does not: see headers.js.
 */

import { isWholeModel } from "./model_file.js";
import { crc32 } from "./zip.js";

const FOLDER = new URL("./", location.href);
// Other folders of the same server may have pages and caches of their own. It is one cache
// for every release of the page, so that a new one finds the model that another has kept.
const CACHE = `keras-luong-web ${FOLDER.pathname}`;
const LITERT = `litert-${LITERT_VERSION}/`;
const worker = /** @type {any} */ (self);

worker.addEventListener("install", (/** @type {any} */ event) => {
  event.waitUntil(install());
});

worker.addEventListener("activate", (/** @type {any} */ event) => {
  event.waitUntil(activate());
});

worker.addEventListener("fetch", (/** @type {any} */ event) => {
  const { method, url } = event.request;
  if (method !== "GET" || new URL(url).origin !== location.origin) return;
  event.respondWith(answer(event.request, (x) => event.waitUntil(x)));
});

/** Keeps this release of the page, all of it or nothing. */
async function install() {
  const cache = await caches.open(CACHE);
  const names = Object.keys(PAGE_SUMS).filter((name) => !name.startsWith(LITERT));
  const files = names.map(async (name) => {
    const request = new Request(FOLDER.href + name, { cache: "no-cache" });
    const copy = await wholeCopy(name, await fetch(request));
    if (!copy) throw new Error(`${request.url} is damaged`);
    return () => cache.put(request, copy);
  });
  for (const keep of await Promise.all(files)) await keep();
  await worker.skipWaiting();
}

async function activate() {
  const cache = await caches.open(CACHE);
  const isOld = (/** @type {Request} */ { url }) =>
    nameOf(url).startsWith("litert-") && !nameOf(url).startsWith(LITERT);
  const old = (await cache.keys()).filter(isOld);
  await Promise.all(old.map((request) => cache.delete(request)));
  await worker.clients.claim();
}

/**
 * What the server says; without a network what was kept. LiteRT's files and models are kept
 * as they come, if they are whole, LiteRT's for good: its version is in their names. The
 * page's other files are kept when a release is installed.
 *
 * @param {Request} request
 * @param {(done: Promise<unknown>) => void} wait Lets the answer be sent before that.
 */
async function answer(request, wait) {
  const cache = await caches.open(CACHE);
  const kept = () => cache.match(request, { ignoreSearch: request.mode === "navigate" });
  const name = nameOf(request.url);
  const isLiteRt = name.startsWith(LITERT);
  const old = isLiteRt && (await kept());
  if (old) return withHeaders(old);
  try {
    const response = await fetch(request.url, { cache: "no-cache" });
    if (isLiteRt || !Object.hasOwn(PAGE_SUMS, name)) {
      const copy = wholeCopy(name, response.clone());
      // A model may be too large to be kept.
      wait(copy.then((x) => x && cache.put(request, x)).catch(() => {}));
    }
    return withHeaders(response);
  } catch (error) {
    const found = await kept();
    if (found) return withHeaders(found);
    throw error;
  }
}

/** @param {string} url @returns {string} What it is called in the page's folder. */
function nameOf(url) {
  return url.split(/[?#]/)[0].replace(FOLDER.href, "");
}

/**
 * @param {string} name
 * @param {Response} response
 * @returns {Promise<Response | undefined>} The same, if it has all bytes of what the page
 *   was built with, or of a model.
 */
async function wholeCopy(name, response) {
  const bytes = new Uint8Array(await response.arrayBuffer());
  const isWhole = Object.hasOwn(PAGE_SUMS, name)
    ? crc32(bytes) === PAGE_SUMS[name]
    : await isWholeModel(bytes);
  return response.ok && isWhole ? new Response(bytes, response) : undefined;
}

/** @param {Response} response */
function withHeaders({ body, status, statusText, headers }) {
  const all = new Headers(headers);
  for (const [name, value] of Object.entries(PAGE_HEADERS)) all.set(name, value);
  return new Response(body, { status, statusText, headers: all });
}
