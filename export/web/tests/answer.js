/**
 * Answers for Python: `node answer.js WHAT < question.json > answer.json`. Bytes are in
 * base64.
 */
import { readFileSync } from "node:fs";

import { readArchive } from "../src/archive.js";
import { SentencePieceTokenizer } from "../src/sentencepiece_tokenizer.js";
import { readText } from "../src/source.js";
import { SPECIAL_IDS } from "../src/special_ids.js";
import { toText } from "../src/utf8.js";
import { WordTokenizer } from "../src/word_tokenizer.js";
import { linksOf, wordsOf } from "../src/words.js";

const bytes = (x) => new Uint8Array(Buffer.from(x, "base64"));
const tokenizer = ({ kind, model }) =>
  kind === "word"
    ? new WordTokenizer(bytes(model), SPECIAL_IDS)
    : new SentencePieceTokenizer(bytes(model), SPECIAL_IDS);

const ANSWERS = {
  /** Ids and pieces of texts, and texts of ids. */
  tokenize({ model, texts, ids }) {
    const made = tokenizer(model);
    const encoded = texts.map((x) => made.encode(toText(bytes(x))));
    return {
      encoded,
      pieces: encoded.map((x) => made.pieces(x)),
      decoded: ids.map((x) => made.decode(x)),
    };
  },

  /** What is read of texts, given as strings or `{bytes}`. */
  read({ model, maxSourceLength, texts }) {
    const source = tokenizer(model);
    const contents = { source, special: SPECIAL_IDS, maxSourceLength, bytesPerToken: 64 };
    return texts.map((x) => readText(x.bytes === undefined ? x : bytes(x.bytes), contents));
  },

  words: (lists) => lists.map(wordsOf),

  links: (translations) => translations.map(linksOf),

  /** What files say of themselves, or why not. */
  archive: (paths) =>
    Promise.all(
      paths.map(async (path) => {
        try {
          const { metadata } = await readArchive(readFileSync(path), "x.tflite");
          return { metadata };
        } catch (error) {
          return { error: error.message };
        }
      }),
    ),
};

const asked = JSON.parse(readFileSync(0, "utf-8"));
const answer = await ANSWERS[process.argv[2]](asked);
process.stdout.write(JSON.stringify(answer));
