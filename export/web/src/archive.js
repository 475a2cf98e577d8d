/**
 * What a `.tflite` file holds beside its graph, as in keras_luong_edge/archive.py, which
 * says what the keys mean.
 */

import { member, readModelFile } from "./model_file.js";
import { SentencePieceTokenizer } from "./sentencepiece_tokenizer.js";
import { SPECIAL_IDS } from "./special_ids.js";
import { WordTokenizer } from "./word_tokenizer.js";

/** @typedef {import("./special_ids.js").SpecialIds} SpecialIds */
/** @typedef {import("./zip.js").Archive} Archive */
/** @typedef {SentencePieceTokenizer | WordTokenizer} Tokenizer */

const FORMAT = 1;
const BYTES_PER_TOKEN = 64;
const MOST_BYTES_PER_TOKEN = 1 << 10;
const MOST_TOKENS = 1 << 16;
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
  let archive, metadata;
  try {
    ({ archive, metadata } = await readModelFile(bytes));
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
    return await contents(archive, metadata);
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
  const most = whole(metadata, "max_source_length", 1, MOST_TOKENS);
  if (metadata.source_length !== null) {
    whole(metadata, "source_length", most + 1, MOST_TOKENS + 1);
  }
}

/**
 * @param {Archive} archive
 * @param {any} metadata
 * @returns {Promise<Contents>}
 */
async function contents(archive, metadata) {
  const special = specialIds("special_ids" in metadata ? metadata.special_ids : SPECIAL_IDS);
  const { source, target } = metadata.tokenizers;
  return {
    metadata,
    source: await tokenizer(archive, source, special),
    target: await tokenizer(archive, target, special),
    special,
    maxSourceLength: metadata.max_source_length,
    sourceLength: metadata.source_length,
    bytesPerToken:
      "bytes_per_token" in metadata
        ? whole(metadata, "bytes_per_token", 1, MOST_BYTES_PER_TOKEN)
        : BYTES_PER_TOKEN,
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
 * @param {number} [largest]
 * @returns {number} A number that the metadata give.
 */
function whole(about, key, smallest, largest = Infinity) {
  const value = about[key];
  if (!Number.isInteger(value) || value < smallest || value > largest) {
    throw new Error(`its ${key} is ${JSON.stringify(value)}`);
  }
  return value;
}

/**
 * @param {Archive} archive
 * @param {{kind: string, file: string}} about
 * @param {SpecialIds} special
 * @returns {Promise<Tokenizer>}
 */
async function tokenizer(archive, about, special) {
  if (!Object.hasOwn(TOKENIZERS, about.kind)) {
    throw new Error(`it has a tokenizer of the kind ${JSON.stringify(about.kind)}`);
  }
  const vocabulary = await member(archive, about.file);
  return new TOKENIZERS[about.kind](vocabulary, special);
}
