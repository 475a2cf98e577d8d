import { wordsOnly } from "./special_ids.js";
import { toTextStrictly } from "./utf8.js";

/** @typedef {import("./special_ids.js").SpecialIds} SpecialIds */

const ASCII_SPACES = /[\t-\r ]+/;

/** Splits text on white space and looks whole words up. */
export class WordTokenizer {
  /**
   * @param {Uint8Array} vocabulary UTF-8, one token a line; a line's number is its id.
   * @param {SpecialIds} special The ids that no text can have.
   */
  constructor(vocabulary, special) {
    this.words = toTextStrictly(vocabulary).split("\n").slice(0, -1);
    this.special = special;
    const noWords = Object.values(special);
    if (this.words.length <= Math.max(...noWords)) {
      throw new Error("its vocabulary lacks special tokens");
    }
    /** @type {Map<string, number>} */
    this.ids = new Map();
    this.words.forEach((word, id) => noWords.includes(id) || this.ids.set(word, id));
  }

  /**
   * @param {string} text
   * @returns {number[]} Its ids, without begin or end.
   */
  encode(text) {
    const words = text.split(ASCII_SPACES).filter((word) => word);
    return words.map((word) => this.ids.get(word) ?? this.special.unk);
  }

  /**
   * @param {Iterable<number>} ids One outside of the vocabulary counts as unknown.
   * @returns {string} Words joined by spaces; padding, begin and end are left out.
   */
  decode(ids) {
    return this.pieces(wordsOnly(ids, this.special)).join(" ");
  }

  /**
   * @param {Iterable<number>} ids
   * @returns {string[]} The word of each id.
   */
  pieces(ids) {
    return Array.from(ids, (id) => this.words[id] ?? this.words[this.special.unk]);
  }
}
