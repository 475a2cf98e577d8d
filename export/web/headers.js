/**
 * What the page may do, as headers of HTTP: run its own code, and load from its own server
 * what it needs. Nothing can be sent anywhere else.
 */

const POLICY = {
  "default-src": "'none'",
  "script-src": "'self' 'wasm-unsafe-eval'", // LiteRT is WebAssembly
  "worker-src": "'self'",
  "connect-src": "'self'", // the model
  "style-src": "'self'",
  "img-src": "'self'",
  "base-uri": "'none'",
  "form-action": "'none'",
};

/** @param {Record<string, string>} policy */
const written = (policy) =>
  Object.entries(policy)
    .map(([name, value]) => `${name} ${value}`)
    .join("; ");

/** For the page's `<meta>`, in which browsers ignore `frame-ancestors`. */
export const META_POLICY = written(POLICY);

/** For a server, and for the service worker, which has no server's help. */
export const HEADERS = {
  "Content-Security-Policy": written({ ...POLICY, "frame-ancestors": "'none'" }),
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Embedder-Policy": "require-corp",
  "Referrer-Policy": "no-referrer",
  "X-Content-Type-Options": "nosniff",
};
