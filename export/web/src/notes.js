/** What is said of the lines of a text. */

const MOST_NAMED = 5;
const LIST = new Intl.ListFormat("en");

/**
 * @param {boolean[]} truncated Of each line, whether the model does not read all of it.
 * @returns {string} Which lines those are; empty if there are none.
 */
export function truncationNote(truncated) {
  const lines = truncated.flatMap((is, i) => (is ? [i + 1] : []));
  if (!lines.length) return "";
  if (truncated.length === 1) {
    return "This is longer than the model reads: only its beginning is translated.";
  }
  const named = lines.slice(0, MOST_NAMED).map(String);
  if (lines.length > MOST_NAMED) named.push(`${lines.length - MOST_NAMED} more`);
  const [line, is, its] = lines.length > 1 ? ["Lines", "are", "their"] : ["Line", "is", "its"];
  return (
    `${line} ${LIST.format(named)} ${is} longer than the model reads: ` +
    `only ${its} beginning is translated.`
  );
}

/**
 * @param {string[]} texts Of all lines.
 * @param {string[]} before What they were when they were last announced.
 * @returns {string} Those that are new, each on a line.
 */
export function news(texts, before) {
  const known = new Set(before);
  return texts.filter((text) => text && !known.has(text)).join("\n");
}
