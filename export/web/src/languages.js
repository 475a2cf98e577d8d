/** The names of languages. */

/**
 * @param {any} metadata What a file says of itself.
 * @param {"source" | "target"} side
 * @returns {string} The language's tag, such as "de"; empty if the file does not say it.
 */
export function languageOf(metadata, side) {
  const tag = metadata?.run?.settings?.[side];
  try {
    return typeof tag === "string" ? (Intl.getCanonicalLocales(tag)[0] ?? "") : "";
  } catch {
    return ""; // "source" may be any name of a file's end
  }
}

/**
 * @param {string} tag
 * @param {string} fallback
 * @returns {string} The language's name, such as "German".
 */
export function nameOf(tag, fallback) {
  if (!tag) return fallback;
  return new Intl.DisplayNames("en", { type: "language" }).of(tag) ?? fallback;
}
