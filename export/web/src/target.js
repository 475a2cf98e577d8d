/** The translations of all lines, one below the other. */

import { byId, element, setText } from "./element.js";

/** @typedef {import("./translator.js").Translation} Translation */

/**
 * @typedef {object} Shown What stands in a line.
 * @property {Translation | undefined} translation
 * @property {boolean} isStale Whether its successor is on its way.
 * @property {boolean} isCurrent Whether the cursor is in it.
 */

/** A paragraph for each line. Those that stay as they are are not touched. */
export class Target {
  constructor() {
    this.element = byId("target");
    /** @type {Shown[]} */
    this.shown = [];
  }

  /**
   * @param {(Translation | undefined)[]} translations Of each line, as far as there are any.
   * @param {number} current The line in which the cursor is.
   * @param {boolean} isComplete Whether none is on its way.
   */
  show(translations, current, isComplete) {
    this.element.ariaBusy = String(!isComplete);
    const { children } = this.element;
    while (children.length > translations.length) this.element.lastChild?.remove();
    this.shown.length = children.length;
    translations.forEach((translation, line) => {
      const isStale = !translation && !isComplete;
      // What stands there stays until its successor is there.
      const stands = isStale ? this.shown[line]?.translation : translation;
      const isCurrent = line === current && translations.length > 1;
      this.put(line, { translation: stands, isStale, isCurrent });
    });
  }

  /**
   * @param {number} line
   * @param {Shown} next
   */
  put(line, next) {
    const { translation, isStale, isCurrent } = next;
    const before = this.shown[line];
    const isSame =
      before?.translation === translation &&
      before?.isStale === isStale &&
      before?.isCurrent === isCurrent;
    if (before && isSame) return;
    this.shown[line] = next;
    const made = this.element.children[line] ?? this.added();
    setText(made, translation?.text ?? "");
    made.classList.toggle("stale", isStale);
    made.classList.toggle("current", isCurrent);
    made.classList.toggle("cut", Boolean(translation?.truncated));
  }

  added() {
    const made = element("p", "", { dir: "auto" });
    this.element.append(made);
    return made;
  }
}
