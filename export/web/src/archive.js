/**
 * What a `.tflite` file holds beside its graph, as in keras_luong_edge/archive.py, which
 * says what the keys mean.
 */

import { SentencePieceTokenizer } from "./sentencepiece_tokenizer.js";
import { SPECIAL_IDS } from "./special_ids.js";
import { toText } from "./utf8.js";
import { WordTokenizer } from "./word_tokenizer.js";
import { unzip } from "./zip.js";

/** @typedef {import("./special_ids.js").SpecialIds} SpecialIds */
/** @typedef {SentencePieceTokenizer | WordTokenizer} Tokenizer */

const METADATA = "keras_luong.json";
const FORMAT = 1;
const BYTES_PER_TOKEN = 64;
const NEEDED = ["max_source_length", "source_length", "quantize", "tokenizers"];

/** @type {Record<string, new (content: Uint8Array, special: SpecialIds) => Tokenizer>} */
const TOKENIZERS = { sentencepiece: SentencePieceTokenizer, word: WordTokenizer };

/**
 * @typedef {object} Contents
 * @property {any} metadata All that the file says of itself.
 * @property {Tokenizer} source
 * @property {Tokenizer} target
 * @property {SpecialIds} special
 * @property {number} maxSourceLength The tokens that are read, without the end token.
 * @property {number} sourceLength What every source is filled up to.
 * @property {number} bytesPerToken The bytes that are read of a text for each token.
 * @property {number} nBest How many of the graph's hypotheses an answer has, at most.
 */

/**
 * @param {Uint8Array} bytes A whole `.tflite` file.
 * @param {string} name What the file is called in messages.
 * @returns {Promise<Contents>}
 * @throws {Error} If it is damaged, or cannot be used here; the message says why.
 */
export async function readArchive(bytes, name) {
  const damaged = (/** @type {any} */ error) =>
    new Error(
      `“${name}” is damaged, or no file of keras-luong export: ${error.message ?? error}.`,
    );
  let files, metadata;
  try {
    files = await unzip(bytes);
    metadata = JSON.parse(toText(member(files, METADATA)));
    if (metadata?.format === undefined) throw new Error("it does not say format");
  } catch (error) {
    throw damaged(error);
  }
  if (metadata.format !== FORMAT) {
    throw new Error(
      `“${name}” has format ${JSON.stringify(metadata.format)}, written by ` +
        `${metadata.library}; this page reads ${FORMAT}.`,
    );
  }
  try {
    check(metadata);
  } catch (error) {
    throw damaged(error);
  }
  if (metadata.source_length === null) throw new Error(lengthNeeded(name));
  try {
    return contents(files, metadata);
  } catch (error) {
    throw damaged(error);
  }
}

/** @param {string} name */
function lengthNeeded(name) {
  return (
    `“${name}” takes sources of any length, which browsers cannot run: they need one ` +
    "length for all. Export it again with --source_length 64."
  );
}

/** @param {any} metadata */
function check(metadata) {
  const missing = NEEDED.filter((key) => !(key in metadata)).sort();
  if (missing.length) throw new Error(`it does not say ${missing.join(", ")}`);
  const most = whole(metadata, "max_source_length", 1);
  if (metadata.source_length !== null) whole(metadata, "source_length", most + 1);
}

/**
 * @param {Map<string, Uint8Array>} files
 * @param {any} metadata
 * @returns {Contents}
 */
function contents(files, metadata) {
  const special = specialIds("special_ids" in metadata ? metadata.special_ids : SPECIAL_IDS);
  const { source, target } = metadata.tokenizers;
  return {
    metadata,
    source: tokenizer(files, source, special),
    target: tokenizer(files, target, special),
    special,
    maxSourceLength: metadata.max_source_length,
    sourceLength: metadata.source_length,
    bytesPerToken: whole(metadata, "bytes_per_token", 1, BYTES_PER_TOKEN),
    nBest: "n_best" in metadata ? whole(metadata, "n_best", 1) : Infinity,
  };
}

/**
 * @param {any} about
 * @returns {SpecialIds}
 */
function specialIds(about) {
  const number = (/** @type {string} */ key) => whole(about, key, 0);
  return {
    pad: number("pad"),
    unk: number("unk"),
    bos: number("bos"),
    eos: number("eos"),
  };
}

/**
 * @param {any} about
 * @param {string} key
 * @param {number} smallest
 * @param {number} [fallback]
 * @returns {number} A number that the metadata give.
 */
function whole(about, key, smallest, fallback) {
  const value = key in about ? about[key] : fallback;
  if (!Number.isInteger(value) || value < smallest) {
    throw new Error(`its ${key} is ${JSON.stringify(value)}`);
  }
  return value;
}

/**
 * @param {Map<string, Uint8Array>} files
 * @param {{kind: string, file: string}} about
 * @param {SpecialIds} special
 * @returns {Tokenizer}
 */
function tokenizer(files, about, special) {
  if (!Object.hasOwn(TOKENIZERS, about.kind)) {
    throw new Error(`it has a tokenizer of the kind ${JSON.stringify(about.kind)}`);
  }
  return new TOKENIZERS[about.kind](member(files, about.file), special);
}

/**
 * @param {Map<string, Uint8Array>} files
 * @param {string} name
 * @returns {Uint8Array}
 */
function member(files, name) {
  const content = files.get(name);
  if (!content) throw new Error(`it has no ${name}`);
  return content;
}
