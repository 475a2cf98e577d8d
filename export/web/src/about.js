/** What is said of a model. */

import { element } from "./element.js";

/**
 * @typedef {object} Model
 * @property {any} metadata What its file says of itself.
 * @property {import("./translator.js").Unknown} unknown
 * @property {number} bytes How large that is.
 * @property {number} threads The cores that are used.
 */

/**
 * @param {string} name
 * @param {Model} model
 * @returns {string} A short line.
 */
export function summary(name, { bytes, metadata }) {
  return `${name}, ${megabytes(bytes)}, ${metadata.quantize ?? "float32"}`;
}

/** @param {number} bytes */
export function megabytes(bytes) {
  return `${(bytes / 1e6).toFixed(1)} MB`;
}

/**
 * @param {Model} model
 * @returns {HTMLElement[]} Terms and what they are, for a `<dl>`.
 */
export function details({ metadata, threads }) {
  const rows = Object.entries({
    Reads: `up to ${metadata.max_source_length} tokens of a sentence`,
    Search: searchOf(metadata.search),
    "Written by": metadata.library,
    Cores: `${threads}`,
    ...scores(metadata.run?.results),
  });
  return rows
    .filter(([, value]) => typeof value === "string" && value)
    .flatMap(([term, value]) => [element("dt", term), element("dd", String(value))]);
}

/**
 * @param {any} search As Python writes it: every setting, whatever it is.
 * @returns {string} Its kind, and what people change.
 */
export function searchOf(search) {
  const [kind] = String(search ?? "").split("(");
  const settings = ["beam_width", "length_penalty"].flatMap(
    (name) => new RegExp(`\\b${name}=[^,)]+`).exec(search) ?? [],
  );
  return [kind, ...settings].join(", ");
}

/**
 * @param {any} results Of a run's evaluation, by the name of the test.
 * @returns {Record<string, string>}
 */
function scores(results) {
  const tests = Object.entries(results ?? {}).filter(([, x]) => Number.isFinite(x?.bleu));
  return Object.fromEntries(
    tests.map(([name, { bleu }]) => [`BLEU of ${name}`, bleu.toFixed(1)]),
  );
}
