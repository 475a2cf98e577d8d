/** The ids that are no words. */

/**
 * @typedef {object} SpecialIds
 * @property {number} pad Fills a source up to a fixed length.
 * @property {number} unk Stands for whatever the vocabulary has not.
 * @property {number} bos Begins a translation.
 * @property {number} eos Ends a source or a translation.
 */

/** @type {SpecialIds} */
export const SPECIAL_IDS = { pad: 0, unk: 1, bos: 2, eos: 3 };

/**
 * @param {Iterable<number>} ids
 * @param {SpecialIds} special
 * @returns {number[]} The ids but padding, begin and end.
 */
export function wordsOnly(ids, { pad, bos, eos }) {
  return [...ids].filter((id) => id !== pad && id !== bos && id !== eos);
}
