/** Text to UTF-8 and back, as Python does it. */

const encoder = new TextEncoder();
// Not strict, as Python's "replace"; and a byte order mark is a character of the text.
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
const strict = new TextDecoder("utf-8", { ignoreBOM: true, fatal: true });
const LONE_SURROGATE = /[\ud800-\udfff]/u;
const SPACES = [9, 10, 11, 12, 13, 32];

/**
 * @param {string} text
 * @returns {Uint8Array} Its UTF-8, in which lone surrogates have three bytes each, as with
 *   Python's "surrogatepass": they are no UTF-8, and read as three U+FFFD.
 */
export function toBytes(text) {
  if (!LONE_SURROGATE.test(text)) return encoder.encode(text);
  const parts = [...text].map((x) => {
    if (!LONE_SURROGATE.test(x)) return [...encoder.encode(x)];
    const unit = x.charCodeAt(0);
    return [0xe0 | (unit >> 12), 0x80 | ((unit >> 6) & 63), 0x80 | (unit & 63)];
  });
  return Uint8Array.from(parts.flat());
}

/**
 * @param {Uint8Array} bytes
 * @returns {string} Their text; what is no UTF-8 becomes U+FFFD.
 */
export function toText(bytes) {
  return decoder.decode(bytes);
}

/**
 * @param {Uint8Array} bytes
 * @returns {string} Their text.
 * @throws {TypeError} If they are no UTF-8.
 */
export function toTextStrictly(bytes) {
  return strict.decode(bytes);
}

/**
 * @param {Uint8Array} bytes
 * @returns {Uint8Array} The same without ASCII white space at the ends.
 */
export function stripped(bytes) {
  let [start, end] = [0, bytes.length];
  while (start < end && SPACES.includes(bytes[start])) start++;
  while (start < end && SPACES.includes(bytes[end - 1])) end--;
  return bytes.subarray(start, end);
}

/** What Python's `str.strip()` removes: not the same as JavaScript's `trim()`. */
const BLANK =
  /^[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]*$/;

/**
 * @param {string} text
 * @returns {boolean} Whether there is nothing but white space.
 */
export function isBlank(text) {
  return BLANK.test(text);
}
