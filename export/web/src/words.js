/**
 * From pieces to words, as `keras_luong.evaluation.alignment` does it.
 *
 * Shapes: `S` source pieces, `T` target pieces.
 */

const WORD_START = "\u2581";
const CONTROLS = ["<pad>", "<s>", "</s>"]; // pieces without text

/**
 * @typedef {object} Word
 * @property {string} text Without word-start signs.
 * @property {number} start Its first piece,
 * @property {number} stop and the one behind its last.
 */

/**
 * Groups pieces into words. If any piece holds a "▁", they are SentencePiece's: a "▁"
 * starts a word, and a "▁" alone belongs to the piece behind it. Otherwise each is a word.
 * Padding, begin and end are always words of their own.
 *
 * @param {string[]} pieces
 * @returns {Word[]} Every piece belongs to exactly one.
 */
export function wordsOf(pieces) {
  const isSpaced = pieces.some((piece) => piece.includes(WORD_START));
  const starts = [...pieces.keys()].filter((i) => !isSpaced || startsWord(pieces, i));
  return starts.map((start, n) => {
    const stop = starts[n + 1] ?? pieces.length;
    const joined = pieces.slice(start, stop).join("");
    return { text: joined.replaceAll(WORD_START, " ").trim(), start, stop };
  });
}

/**
 * @param {string[]} pieces
 * @param {number} i
 */
function startsWord(pieces, i) {
  if (i === 0 || isControl(pieces[i]) || isControl(pieces[i - 1])) return true;
  const stop = pieces.findIndex((piece, j) => j > i && isControl(piece));
  const rest = pieces.slice(i, stop < 0 ? undefined : stop);
  return (
    pieces[i].startsWith(WORD_START) &&
    hasText(pieces[i - 1]) && // a lone "▁" has started it already
    rest.some(hasText) // else it ends a sentence
  );
}

/** @param {string} piece */
function isControl(piece) {
  return CONTROLS.includes(piece);
}

/** @param {string} piece */
function hasText(piece) {
  return piece.replaceAll(WORD_START, "") !== "";
}

/**
 * @typedef {object} Links
 * @property {string[]} source The source's words, without the end.
 * @property {string[]} target The target's words, without the end.
 * @property {number[][]} weights `[target words][source words]`
 */

/**
 * Attention between words: that *to* the pieces of a word is summed, that *from* them
 * averaged (Clark et al. 2019, arXiv:1906.04341, section 4.1). What the end is attended
 * with is left out, so a row sums to at most 1.
 *
 * @param {{tokens: string[], sourceTokens: string[], alignment: ArrayLike<number>[]}}
 *   translation
 * @returns {Links}
 */
export function linksOf({ tokens, sourceTokens, alignment }) {
  const isWord = (/** @type {Word} */ word) => !isControl(word.text);
  const columns = wordsOf(sourceTokens).filter(isWord);
  const rows = wordsOf(tokens).filter(isWord);
  const weights = rows.map((row) => {
    const steps = alignment.slice(row.start, row.stop);
    return columns.map((column) => mean(steps.map((step) => sum(step, column))));
  });
  const text = (/** @type {Word} */ word) => word.text;
  return { source: columns.map(text), target: rows.map(text), weights };
}

/**
 * @param {ArrayLike<number>} step
 * @param {Word} word
 */
function sum(step, { start, stop }) {
  let total = 0;
  for (let i = start; i < stop; i++) total += step[i];
  return total;
}

/** @param {number[]} numbers */
function mean(numbers) {
  return numbers.reduce((a, b) => a + b, 0) / numbers.length;
}
