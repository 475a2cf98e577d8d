/** A SentencePiece model as it is stored: a message of Protocol Buffers. */

import { Charsmap } from "./charsmap.js";
import { fields } from "./protobuf.js";
import { toText } from "./utf8.js";

export const NORMAL = 1;
export const UNKNOWN = 2;
export const CONTROL = 3;
const UNUSED = 5;
const UNIGRAM = 1;

/**
 * @typedef {object} Model
 * @property {string[]} pieces
 * @property {number[]} scores
 * @property {number[]} kinds
 * @property {string} unkSurface What a text has in the place of what is unknown.
 * @property {Charsmap} charsmap
 * @property {boolean} addDummyPrefix
 * @property {boolean} removeExtraWhitespaces
 * @property {boolean} escapeWhitespaces
 */

/**
 * @param {Uint8Array} bytes
 * @returns {Model}
 * @throws {Error} If it is none, or one that is split in another way than by unigrams.
 */
export function readModel(bytes) {
  if (!bytes.length) throw new Error("its SentencePiece model is empty");
  /** @type {Model} */
  const model = {
    pieces: [],
    scores: [],
    kinds: [],
    unkSurface: " \u2047 ",
    charsmap: new Charsmap(new Uint8Array()),
    addDummyPrefix: true,
    removeExtraWhitespaces: true,
    escapeWhitespaces: true,
  };
  for (const [number, value] of fields(bytes)) {
    if (number === 1) addPiece(value, model);
    else if (number === 2) readTrainerSpec(value, model);
    else if (number === 3) readNormalizerSpec(value, model);
  }
  if (!model.kinds.includes(UNKNOWN)) throw new Error("it is no SentencePiece model");
  return model;
}

/**
 * @param {Uint8Array} bytes
 * @param {Model} model
 */
function addPiece(bytes, model) {
  let [piece, score, kind] = ["", 0, NORMAL];
  for (const [number, value] of fields(bytes)) {
    if (number === 1) piece = toText(value);
    else if (number === 2) score = value;
    else if (number === 3) kind = value;
  }
  if (![NORMAL, UNKNOWN, CONTROL, UNUSED].includes(kind)) {
    throw new Error(`its piece “${piece}” is user-defined or a byte, unknown to this page`);
  }
  model.pieces.push(piece);
  model.scores.push(score);
  model.kinds.push(kind);
}

/**
 * @param {Uint8Array} bytes
 * @param {Model} model
 */
function readTrainerSpec(bytes, model) {
  for (const [number, value] of fields(bytes)) {
    if (number === 3 && value !== UNIGRAM) {
      throw new Error("its SentencePiece model is no unigram model");
    }
    if (number === 24 && value) {
      throw new Error("its pieces end with spaces, unknown to this page");
    }
    if (number === 44) model.unkSurface = toText(value);
  }
}

/**
 * @param {Uint8Array} bytes
 * @param {Model} model
 */
function readNormalizerSpec(bytes, model) {
  for (const [number, value] of fields(bytes)) {
    if (number === 2) model.charsmap = new Charsmap(value);
    else if (number === 3) model.addDummyPrefix = Boolean(value);
    else if (number === 4) model.removeExtraWhitespaces = Boolean(value);
    else if (number === 5) model.escapeWhitespaces = Boolean(value);
  }
}
