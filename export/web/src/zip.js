/** Files within a zip archive that ends a file, as Python's `zipfile` writes it. */

const END = 0x06054b50;
const ENTRY = 0x02014b50;
const STORED = 0;
const DEFLATED = 8;
const LONGEST_COMMENT = 0xffff;

/**
 * @typedef {object} Archive
 * @property {number} start How many bytes stand before it.
 * @property {Map<string, Entry>} entries By their names.
 */

/**
 * Finds the files of the archive at the end of some bytes.
 *
 * @param {Uint8Array} bytes
 * @returns {Archive}
 * @throws {Error} If there is none.
 */
export function readDirectory(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const end = findEnd(view);
  const size = view.getUint32(end + 12, true);
  // What stands before the archive: offsets may not count it.
  const shift = end - size - view.getUint32(end + 16, true);
  if (shift < 0) throw new Error("its archive is cut off");
  const entries = new Map();
  let at = end - size;
  let start = at;
  for (let left = view.getUint16(end + 10, true); left > 0; left--) {
    const entry = readEntry(bytes, view, at, shift);
    entries.set(entry.name, entry);
    start = Math.min(start, entry.start);
    at = entry.next;
  }
  return { start, entries };
}

/**
 * @param {DataView} view
 * @returns {number} Where the archive's last record begins.
 */
function findEnd(view) {
  const last = view.byteLength - 22;
  for (let at = last; at >= Math.max(0, last - LONGEST_COMMENT); at--) {
    if (view.getUint32(at, true) === END) return at;
  }
  throw new Error("it has no archive at its end");
}

/**
 * @typedef {object} Entry
 * @property {string} name
 * @property {number} method
 * @property {number} sum The content's CRC-32.
 * @property {Uint8Array} packed
 * @property {number} start Where its own header begins.
 * @property {number} next Where the next entry begins.
 */

/**
 * @param {Uint8Array} bytes
 * @param {DataView} view
 * @param {number} at
 * @param {number} shift
 * @returns {Entry}
 */
function readEntry(bytes, view, at, shift) {
  if (view.getUint32(at, true) !== ENTRY) throw new Error("its archive is damaged");
  const name = view.getUint16(at + 28, true);
  const rest = view.getUint16(at + 30, true) + view.getUint16(at + 32, true);
  const local = view.getUint32(at + 42, true) + shift;
  // The local header has a name and an extra field of its own.
  const content =
    local + 30 + view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
  return {
    name: new TextDecoder().decode(bytes.subarray(at + 46, at + 46 + name)),
    method: view.getUint16(at + 10, true),
    sum: view.getUint32(at + 16, true),
    packed: bytes.subarray(content, content + view.getUint32(at + 20, true)),
    start: local,
    next: at + 46 + name + rest,
  };
}

/**
 * @param {Entry} entry
 * @param {number} most The bytes that it may have; no more are unpacked.
 * @returns {Promise<Uint8Array>} Its content; a view where it is stored as it is.
 * @throws {Error} If it is damaged, or larger.
 */
export async function unpacked({ name, method, sum, packed }, most) {
  if (method !== STORED && method !== DEFLATED) {
    throw new Error(`${name} is compressed by method ${method}`);
  }
  const content = method === STORED ? packed : await inflated(packed, most);
  if (content.length > most) throw new Error(`${name} unpacks to more than ${most} bytes`);
  if (crc32(content) !== sum) throw new Error(`${name} has other bytes than were written`);
  return content;
}

/**
 * @param {Uint8Array} packed
 * @param {number} most
 * @returns {Promise<Uint8Array>} What it unpacks to; of more than `most` the beginning.
 */
async function inflated(packed, most) {
  const stream = new Blob([/** @type {BlobPart} */ (packed)]).stream();
  const plain = stream.pipeThrough(new DecompressionStream("deflate-raw"));
  /** @type {BlobPart[]} */
  const parts = [];
  let length = 0;
  // Leaving the loop cancels the rest.
  for await (const part of /** @type {AsyncIterable<any>} */ (/** @type {any} */ (plain))) {
    parts.push(part);
    length += part.length;
    if (length > most) break;
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let x = byte;
  for (let bit = 0; bit < 8; bit++) x = (x >>> 1) ^ (x & 1 ? 0xedb88320 : 0);
  return x;
});

/**
 * @param {Uint8Array} bytes
 * @returns {number} Their CRC-32.
 */
export function crc32(bytes) {
  let x = 0xffffffff;
  for (let i = 0; i < bytes.length; i++) x = (x >>> 8) ^ TABLE[(x ^ bytes[i]) & 255];
  return ~x >>> 0;
}
