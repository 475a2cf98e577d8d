/** What SentencePiece changes in a text before it splits it. */

const SPACE = 0x20;
const WORD_START = [0xe2, 0x96, 0x81]; // "▁", which stands for a space from then on

/**
 * A rule that is compiled into a model: a trie (darts-clone) from sequences of bytes to
 * what is written in their place. Every rule of a model is one, whatever its name.
 */
export class Charsmap {
  /**
   * @param {Uint8Array} compiled The model's `precompiled_charsmap`; empty if nothing is
   *   replaced.
   */
  constructor(compiled) {
    const copy = compiled.slice(); // which starts where 32-bit numbers may
    const size = copy.length ? new DataView(copy.buffer).getUint32(0, true) : 0;
    if (size % 4 || size + 4 > Math.max(copy.length, 4)) {
      throw new Error("its normalisation is damaged");
    }
    this.trie = new Uint32Array(copy.buffer.slice(4, 4 + size));
    this.replacements = copy.subarray(4 + size);
  }

  /**
   * Reads what stands at some place.
   *
   * @param {Uint8Array} text UTF-8.
   * @param {number} at Where a character begins.
   * @returns {{length: number, bytes: Uint8Array}} How many bytes were read, and what is
   *   written for them.
   */
  read(text, at) {
    const { length, value } = this.longest(text, at);
    if (length) {
      const end = this.replacements.indexOf(0, value);
      return { length, bytes: this.replacements.subarray(value, end) };
    }
    const one = characterLength(text[at]);
    return { length: one, bytes: text.subarray(at, at + one) };
  }

  /**
   * @param {Uint8Array} text
   * @param {number} at
   * @returns {{length: number, value: number}} The longest key there; length 0 if none.
   */
  longest(text, at) {
    const { trie } = this;
    const found = { length: 0, value: 0 };
    if (!trie.length) return found;
    let node = childrenOf(trie[0]);
    for (let i = at; i < text.length; i++) {
      node ^= text[i];
      const unit = trie[node];
      if ((unit & 0x800000ff) !== text[i]) break; // another byte's child
      node ^= childrenOf(unit);
      if (unit & 0x100) {
        found.length = i + 1 - at;
        found.value = trie[node] & 0x7fffffff;
      }
    }
    return found;
  }
}

/**
 * @param {number} unit A node of the trie.
 * @returns {number} The distance to its children.
 */
function childrenOf(unit) {
  return (unit >>> 10) << ((unit & 0x200) >>> 6);
}

/**
 * @param {number} first A character's first byte in UTF-8.
 * @returns {number} How many bytes it has.
 */
function characterLength(first) {
  return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/**
 * Prepares a text.
 *
 * @param {Uint8Array} text UTF-8.
 * @param {{charsmap: Charsmap, addDummyPrefix: boolean, removeExtraWhitespaces: boolean,
 *   escapeWhitespaces: boolean}} rule
 * @returns {Uint8Array} UTF-8, with "▁" for each space and in front.
 */
export function normalize(text, rule) {
  const remove = rule.removeExtraWhitespaces;
  const space = rule.escapeWhitespaces ? WORD_START : [SPACE];
  /** @type {number[]} */
  const out = [];
  let afterSpace = remove; // so that spaces are left out here
  let begun = false;
  for (let at = 0; at < text.length; ) {
    let { length, bytes } = rule.charsmap.read(text, at);
    at += length;
    if (!begun) {
      if (remove && bytes.length === 1 && bytes[0] === SPACE) continue;
      begun = true;
      if (rule.addDummyPrefix) out.push(...space);
    }
    if (afterSpace) bytes = withoutSpaces(bytes);
    for (const byte of bytes) byte === SPACE ? out.push(...space) : out.push(byte);
    if (bytes.length) afterSpace = remove && bytes[bytes.length - 1] === SPACE;
  }
  if (remove) removeAtEnd(out, space);
  return Uint8Array.from(out);
}

/** @param {Uint8Array} bytes */
function withoutSpaces(bytes) {
  let start = 0;
  while (bytes[start] === SPACE) start++;
  return bytes.subarray(start);
}

/**
 * @param {number[]} out
 * @param {number[]} space
 */
function removeAtEnd(out, space) {
  const ends = () => space.every((x, i) => out[out.length - space.length + i] === x);
  while (out.length >= space.length && ends()) out.length -= space.length;
}
