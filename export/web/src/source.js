/** A text, read as the model was taught to read. */

import { isBlank, stripped, toBytes, toText } from "./utf8.js";

/** @typedef {import("./archive.js").Contents} Contents */

/**
 * @typedef {object} Source
 * @property {number[]} ids The last one is the end token's.
 * @property {boolean} truncated Whether something was left out.
 * @property {boolean} empty Whether there is nothing to translate.
 */

/**
 * Reads a text: any text, whatever is in it.
 *
 * ASCII white space around it does not count. Of what is left so many bytes are read as
 * the longest source may have. What is no UTF-8 becomes U+FFFD, so does a lone surrogate.
 *
 * @param {string | Uint8Array} text
 * @param {Contents} contents What the file says of tokens and limits.
 * @returns {Source} Whatever the text, it has at least the end token.
 */
export function readText(text, contents) {
  const most = contents.maxSourceLength;
  const bytes = stripped(typeof text === "string" ? toBytes(text) : text);
  const longest = contents.bytesPerToken * most;
  const read = toText(bytes.subarray(0, longest));
  const ids = contents.source.encode(read);
  const empty = isBlank(read) || !ids.length;
  const truncated = bytes.length > longest || (ids.length > most && !empty);
  return { ids: [...ids.slice(0, most), contents.special.eos], truncated, empty };
}
