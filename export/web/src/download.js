/** Files from where the page comes from. */

/**
 * @param {string} url Absolute, or from the page's own.
 * @param {(loaded: number, total: number) => void} onProgress In bytes; the total is 0 if
 *   it is not known.
 * @returns {Promise<Uint8Array>}
 * @throws {Error} If there is none; the message says why.
 */
export async function download(url, onProgress) {
  if (!URL.canParse(url, self.location.href)) {
    throw new Error(`“${url}” is not the address of a file.`);
  }
  let response;
  try {
    response = await fetch(url);
  } catch {
    throw new Error(
      `“${url}” cannot be loaded. It must come from this page's own server: other ` +
        "addresses are closed to the page. You can download the file and drop it here.",
    );
  }
  if (!response.ok || !response.body) {
    throw new Error(`“${url}” cannot be loaded: the server says ${response.status}.`);
  }
  // Of a compressed answer the length that is given is another.
  const packed = response.headers.has("Content-Encoding");
  const total = packed ? 0 : Number(response.headers.get("Content-Length") ?? 0);
  /** @type {Uint8Array[]} */
  const parts = [];
  let loaded = 0;
  const reader = response.body.getReader();
  for (let read = await reader.read(); !read.done; read = await reader.read()) {
    parts.push(read.value);
    loaded += read.value.length;
    onProgress(loaded, total);
  }
  return joined(parts, loaded);
}

/**
 * @param {Uint8Array[]} parts
 * @param {number} length
 */
function joined(parts, length) {
  const bytes = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}
