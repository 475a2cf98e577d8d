/**
 * Answers for Python: reads a JSON file
 * `{kind, model (base64), special?, texts (base64 each), ids}` and writes
 * `{encoded, pieces, decoded}`.
 */
import { readFileSync, writeFileSync } from "node:fs";

import { SentencePieceTokenizer } from "../src/sentencepiece_tokenizer.js";
import { SPECIAL_IDS } from "../src/special_ids.js";
import { toText } from "../src/utf8.js";
import { WordTokenizer } from "../src/word_tokenizer.js";

const [asked, answered] = process.argv.slice(2);
const { kind, model, texts, ids } = JSON.parse(readFileSync(asked, "utf-8"));
const Tokenizer = kind === "word" ? WordTokenizer : SentencePieceTokenizer;
const bytes = (/** @type {string} */ x) => new Uint8Array(Buffer.from(x, "base64"));
const tokenizer = new Tokenizer(bytes(model), SPECIAL_IDS);
const encoded = texts.map((/** @type {string} */ x) => tokenizer.encode(toText(bytes(x))));
const answers = {
  encoded,
  pieces: encoded.map((/** @type {number[]} */ x) => tokenizer.pieces(x)),
  decoded: ids.map((/** @type {number[]} */ x) => tokenizer.decode(x)),
};
writeFileSync(answered, JSON.stringify(answers));
