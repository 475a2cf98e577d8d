/** Files within a zip archive that ends a file, as Python's `zipfile` writes it. */

const END = 0x06054b50;
const ENTRY = 0x02014b50;
const STORED = 0;
const DEFLATED = 8;
const LONGEST_COMMENT = 0xffff;

/**
 * Reads all files of the archive at the end of some bytes.
 *
 * @param {Uint8Array} bytes Whatever stands before the archive does not count.
 * @returns {Promise<Map<string, Uint8Array>>} Name → content; views where it is stored
 *   as it is.
 */
export async function unzip(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const end = findEnd(view);
  const size = view.getUint32(end + 12, true);
  // What stands before the archive: offsets may not count it.
  const shift = end - size - view.getUint32(end + 16, true);
  if (shift < 0) throw new Error("its archive is cut off");
  const files = new Map();
  let at = end - size;
  for (let left = view.getUint16(end + 10, true); left > 0; left--) {
    const entry = readEntry(bytes, view, at, shift);
    files.set(entry.name, await unpacked(entry));
    at = entry.next;
  }
  return files;
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
  const start =
    local + 30 + view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
  return {
    name: new TextDecoder().decode(bytes.subarray(at + 46, at + 46 + name)),
    method: view.getUint16(at + 10, true),
    sum: view.getUint32(at + 16, true),
    packed: bytes.subarray(start, start + view.getUint32(at + 20, true)),
    next: at + 46 + name + rest,
  };
}

/**
 * @param {Entry} entry
 * @returns {Promise<Uint8Array>}
 */
async function unpacked({ name, method, sum, packed }) {
  if (method !== STORED && method !== DEFLATED) {
    throw new Error(`${name} is compressed by method ${method}`);
  }
  const content = method === STORED ? packed : await inflated(packed);
  if (crc32(content) !== sum) throw new Error(`${name} has other bytes than were written`);
  return content;
}

/**
 * @param {Uint8Array} packed
 * @returns {Promise<Uint8Array>}
 */
async function inflated(packed) {
  const stream = new Blob([/** @type {BlobPart} */ (packed)]).stream();
  const plain = stream.pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(plain).arrayBuffer());
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
  for (const byte of bytes) x = (x >>> 8) ^ TABLE[(x ^ byte) & 255];
  return ~x >>> 0;
}
