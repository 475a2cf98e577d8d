/**
 * Keeps the page and its model, so that both work without a network; and gives every answer
 * the headers that a plain file server does not: see headers.js.
 */

const FOLDER = new URL("./", location.href);
// Other folders of the same server may have pages and caches of their own. It is one cache
// for every release of the page, so that a new one finds the model that another has kept.
const CACHE = `keras-luong-web ${FOLDER.pathname}`;
const LITERT = `${FOLDER.href}litert-${LITERT_VERSION}/`;
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

async function install() {
  const cache = await caches.open(CACHE);
  const fresh = ["./", ...PAGE_FILES].map((x) => new Request(x, { cache: "no-cache" }));
  await cache.addAll(fresh);
  await worker.skipWaiting();
}

async function activate() {
  const cache = await caches.open(CACHE);
  const isOld = (/** @type {Request} */ { url }) =>
    url.startsWith(`${FOLDER.href}litert-`) && !url.startsWith(LITERT);
  const old = (await cache.keys()).filter(isOld);
  await Promise.all(old.map((request) => cache.delete(request)));
  await worker.clients.claim();
}

/**
 * What the server says, which is kept; without a network what was kept. LiteRT's files
 * have its version in their names, and are asked for once.
 *
 * @param {Request} request
 * @param {(done: Promise<unknown>) => void} wait Lets the answer be sent before that.
 */
async function answer(request, wait) {
  const cache = await caches.open(CACHE);
  const kept = () => cache.match(request, { ignoreSearch: request.mode === "navigate" });
  const old = request.url.startsWith(LITERT) && (await kept());
  if (old) return withHeaders(old);
  try {
    const response = await fetch(request.url, { cache: "no-cache" });
    // A model may be too large to be kept.
    if (response.ok) wait(cache.put(request, response.clone()).catch(() => {}));
    return withHeaders(response);
  } catch (error) {
    const found = await kept();
    if (found) return withHeaders(found);
    throw error;
  }
}

/** @param {Response} response */
function withHeaders({ body, status, statusText, headers }) {
  const all = new Headers(headers);
  for (const [name, value] of Object.entries(PAGE_HEADERS)) all.set(name, value);
  return new Response(body, { status, statusText, headers: all });
}
