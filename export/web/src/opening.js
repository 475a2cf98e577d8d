/** What a model's file is asked for by. */

/**
 * @param {string | File} asked A file, or where it is: an address, from the page's own.
 * @returns {import("./worker.js").Opening}
 */
export function openingOf(asked) {
  if (typeof asked !== "string") return { name: asked.name, file: asked };
  const [path] = asked.split(/[?#]/);
  return { name: decoded(path.split("/").pop() || asked), url: asked };
}

/** @param {string} text With or without signs such as %20. */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a "%" may be just that
  }
}
