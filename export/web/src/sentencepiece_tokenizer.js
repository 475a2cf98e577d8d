import { normalize } from "./charsmap.js";
import { CONTROL, NORMAL, readModel, UNKNOWN } from "./sentencepiece_model.js";
import { wordsOnly } from "./special_ids.js";
import { toBytes, toText } from "./utf8.js";

/** @typedef {import("./special_ids.js").SpecialIds} SpecialIds */

const WORD_START = "\u2581";
const UNKNOWN_PENALTY = 10;
const CODE_POINTS = 0x110000;

/**
 * Splits text into the pieces of a SentencePiece unigram model: the same as Python's
 * sentencepiece 0.2.1 and tensorflow-text do, and where two ways are equally probable, the
 * same one.
 */
export class SentencePieceTokenizer {
  /**
   * @param {Uint8Array} model The serialised model.
   * @param {SpecialIds} special The ids that are no words.
   */
  constructor(model, special) {
    this.model = readModel(model);
    this.special = special;
    this.unknown = this.model.kinds.indexOf(UNKNOWN);
    const { scores, kinds } = this.model;
    if (kinds.length <= Math.max(...Object.values(special))) {
      throw new Error("its vocabulary lacks special tokens");
    }
    const lowest = scores.reduce(
      (least, score, id) => (kinds[id] === NORMAL && score < least ? score : least),
      Infinity,
    );
    this.unknownScore = Math.fround(lowest - UNKNOWN_PENALTY);
    this.trie = new Trie(this.model.pieces, (id) => kinds[id] === NORMAL);
  }

  /**
   * @param {string} text
   * @returns {number[]} Its ids, without begin or end.
   */
  encode(text) {
    const normalized = toText(normalize(toBytes(text), this.model));
    const ids = this.bestPath(Array.from(normalized, (x) => x.codePointAt(0) ?? 0));
    // Of neighbours that are unknown one is left.
    return ids.filter((id, i) => id !== this.unknown || ids[i - 1] !== id);
  }

  /**
   * Viterbi's algorithm.
   *
   * @param {number[]} text Code points.
   * @returns {number[]} The most probable pieces.
   */
  bestPath(text) {
    const size = text.length;
    // As in SentencePiece, sums are kept in float32, but compared before they are rounded.
    const best = new Float32Array(size + 1);
    const from = new Int32Array(size + 1).fill(-1);
    const piece = new Int32Array(size + 1);
    /** @type {(id: number, start: number, end: number, score: number) => void} */
    const offer = (id, start, end, score) => {
      if (from[end] !== -1 && score <= best[end]) return;
      best[end] = score;
      from[end] = start;
      piece[end] = id;
    };
    for (let start = 0; start < size; start++) {
      let isKnown = false;
      for (const [id, end] of this.trie.prefixes(text, start)) {
        offer(id, start, end, this.model.scores[id] + best[start]);
        if (end === start + 1) isKnown = true;
      }
      const score = Math.fround(this.unknownScore + best[start]);
      if (!isKnown) offer(this.unknown, start, start + 1, score);
    }
    const ids = [];
    for (let end = size; end > 0; end = from[end]) ids.push(piece[end]);
    return ids.reverse();
  }

  /**
   * @param {Iterable<number>} ids One outside of the vocabulary counts as unknown.
   * @returns {string} Their text; padding, begin and end are left out.
   */
  decode(ids) {
    const { kinds, unkSurface, addDummyPrefix, removeExtraWhitespaces } = this.model;
    const dropsStart = addDummyPrefix || removeExtraWhitespaces;
    let [text, atStart] = ["", dropsStart];
    for (const id of wordsOnly(this.known(ids), this.special)) {
      if (text) atStart = false;
      if (kinds[id] === CONTROL) continue;
      let piece = kinds[id] === UNKNOWN ? unkSurface : this.model.pieces[id];
      if (atStart && kinds[id] !== UNKNOWN && piece.startsWith(WORD_START)) {
        piece = piece.slice(1);
        // Then the text has begun, unless spaces that are too many do not count.
        if (!removeExtraWhitespaces) atStart = false;
      }
      text += kinds[id] === UNKNOWN ? piece : piece.replaceAll(WORD_START, " ");
    }
    return text;
  }

  /**
   * @param {Iterable<number>} ids
   * @returns {string[]} The piece of each id; "▁" marks the start of a word.
   */
  pieces(ids) {
    return this.known(ids).map((id) => this.model.pieces[id]);
  }

  /** @param {Iterable<number>} ids */
  known(ids) {
    const size = this.model.pieces.length;
    return Array.from(ids, (id) => (id < size ? id : this.special.unk));
  }
}

/** Words, to be found as the beginnings of a text. */
class Trie {
  /**
   * @param {string[]} words
   * @param {(index: number) => boolean} isWord Whether one is to be found.
   */
  constructor(words, isWord) {
    /** @type {Map<number, number>} A node and a code point → the node behind it. */
    this.next = new Map();
    /** @type {number[]} A node → the index of the word that ends there. */
    this.found = [-1];
    words.forEach((word, index) => isWord(index) && this.add(word, index));
  }

  /**
   * @param {string} word
   * @param {number} index
   */
  add(word, index) {
    let node = 0;
    for (const character of word) {
      const key = node * CODE_POINTS + (character.codePointAt(0) ?? 0);
      node = this.next.get(key) ?? this.found.push(-1) - 1;
      this.next.set(key, node);
    }
    this.found[node] = index;
  }

  /**
   * @param {number[]} text Code points.
   * @param {number} start
   * @returns {Generator<[index: number, end: number]>} The words that begin there, the
   *   shortest first.
   */
  *prefixes(text, start) {
    for (let node = 0, end = start; end < text.length; ) {
      const next = this.next.get(node * CODE_POINTS + text[end++]);
      if (next === undefined) return;
      if (this.found[next] >= 0) yield [this.found[next], end];
      node = next;
    }
  }
}
