/** Elements of the page. */

/**
 * @template {Element} [T=HTMLElement]
 * @param {string} id
 * @returns {T} The page's element of that name.
 */
export function byId(id) {
  return /** @type {T} */ (/** @type {unknown} */ (document.getElementById(id)));
}

/**
 * Leaves an element alone that has the text already, so that nobody hears it again.
 *
 * @param {Element} at
 * @param {string} text
 */
export function setText(at, text) {
  if (at.textContent !== text) at.textContent = text;
}

/**
 * @template {keyof HTMLElementTagNameMap} Name
 * @param {Name} name
 * @param {string} text
 * @param {Record<string, string>} [attributes]
 * @returns {HTMLElementTagNameMap[Name]} A new element.
 */
export function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
