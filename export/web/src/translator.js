/**
 * Text in, text out, as `EdgeTranslator` does it.
 *
 * Shapes: `S` source tokens, `T` target tokens, ends counted.
 */

import { readArchive } from "./archive.js";
import { Graph } from "./graph.js";
import { readText } from "./source.js";

/** @typedef {import("./archive.js").Contents} Contents */
/** @typedef {import("./graph.js").Found} Found */
/** @typedef {import("./source.js").Source} Source */

/**
 * @typedef {object} Translation
 * @property {string} text Empty if the source is empty or white space.
 * @property {number} score By which the search ranked it; 0 for an empty source.
 * @property {string[]} tokens The target's pieces, the end token included.
 * @property {string[]} sourceTokens The source's pieces as the model read them, the end
 *   token included.
 * @property {Float32Array[]} alignment `[T][S]`, the attention.
 * @property {boolean} truncated Whether the source was longer than the model reads.
 */

/**
 * @typedef {Record<"source" | "target", {piece: string, text: string}>} Unknown What stands
 *   for words that the model does not know, as a piece and in a text.
 */

/** Translates with one `.tflite` file. */
export class Translator {
  /**
   * @param {Uint8Array} bytes The file.
   * @param {string} name What it is called in messages.
   * @param {number} threads The cores that it may use.
   * @returns {Promise<Translator>}
   */
  static async load(bytes, name, threads) {
    const contents = await readArchive(bytes, name);
    const graph = await Graph.load(bytes, name, contents.sourceLength, threads);
    return new Translator(contents, graph);
  }

  /**
   * @param {Contents} contents
   * @param {Pick<Graph, "run" | "delete">} graph
   */
  constructor(contents, graph) {
    this.contents = contents;
    this.graph = graph;
  }

  /**
   * @param {string | Uint8Array} text One sentence, or bytes in UTF-8.
   * @returns {Promise<Translation[]>} The best hypotheses whose texts differ, the best
   *   first; at least one.
   */
  async translate(text) {
    const source = readText(text, this.contents);
    if (source.empty) return [nothing(source)];
    const found = await this.graph.run(this.padded(source.ids));
    /** @type {Map<string, Translation>} One text may have other pieces. */
    const hypotheses = new Map();
    found.lengths.forEach((length, n) => {
      if (length === 0 && n > 0) return; // a place that no hypothesis has taken
      const hypothesis = this.hypothesis(source, found, n);
      if (!hypotheses.has(hypothesis.text)) hypotheses.set(hypothesis.text, hypothesis);
    });
    return [...hypotheses.values()].slice(0, this.contents.nBest);
  }

  /**
   * @param {Source} source
   * @param {Found} found
   * @param {number} n
   * @returns {Translation}
   */
  hypothesis(source, found, n) {
    const { source: ofSource, target: ofTarget, sourceLength: S } = this.contents;
    const T = found.ids.length / found.lengths.length;
    const length = found.lengths[n];
    const ids = found.ids.subarray(n * T, n * T + length);
    const row = (/** @type {number} */ t) => (n * T + t) * S;
    return {
      text: ofTarget.decode(ids),
      score: length ? found.scores[n] : -Infinity,
      tokens: ofTarget.pieces(ids),
      sourceTokens: ofSource.pieces(source.ids),
      alignment: Array.from({ length }, (_, t) =>
        found.weights.slice(row(t), row(t) + source.ids.length),
      ),
      truncated: source.truncated,
    };
  }

  /** @returns {Unknown} */
  unknown() {
    const { source, target, special } = this.contents;
    const of = (/** @type {import("./archive.js").Tokenizer} */ tokenizer) => ({
      piece: tokenizer.pieces([special.unk])[0],
      text: tokenizer.decode([special.unk]).trim(),
    });
    return { source: of(source), target: of(target) };
  }

  /** @param {number[]} ids */
  padded(ids) {
    const { sourceLength, special } = this.contents;
    const source = new Int32Array(sourceLength).fill(special.pad);
    source.set(ids);
    return source;
  }

  /** Frees its memory. */
  delete() {
    this.graph.delete();
  }
}

/**
 * @param {Source} source
 * @returns {Translation} The translation of an empty text.
 */
function nothing({ truncated }) {
  return { text: "", score: 0, tokens: [], sourceTokens: [], alignment: [], truncated };
}
