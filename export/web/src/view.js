/** The translations of a text's lines, and of one of them all that is known. */

import { AttentionPicture } from "./attention.js";
import { byId, element, setText } from "./element.js";
import { languageOf, nameOf } from "./languages.js";
import { news, truncationNote } from "./notes.js";
import { Target } from "./target.js";

/** @typedef {import("./translator.js").Translation} Translation */
/** @typedef {"source" | "target"} Side */

const SIDES = /** @type {Side[]} */ (["source", "target"]);
const FALLBACKS = { source: "Source", target: "Translation" };
const SPOKEN_AFTER = 900; // milliseconds without a change

/** Shows what was found. */
export class View {
  constructor() {
    /** @type {HTMLTextAreaElement} */
    this.source = byId("source");
    this.target = new Target();
    this.picture = new AttentionPicture();
    this.languages = { source: "", target: "" };
    this.names = { ...FALLBACKS };
    /** @type {(Translation[] | undefined)[]} An answer for each line, best first. */
    this.answers = [];
    /** Whether none is on its way. */
    this.isComplete = true;
    /** The line in which the cursor is. */
    this.line = 0;
    /** @type {Translation[] | undefined} Its translations, best first. */
    this.found = undefined;
    /** @type {WeakMap<Translation[], number>} Which of them is looked at, if not the best. */
    this.chosen = new WeakMap();
    /** @type {string[]} What was announced last. */
    this.spoken = [];
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    byId("choices").addEventListener("change", ({ target }) => {
      this.choose(Number(/** @type {HTMLInputElement} */ (target).value));
    });
  }

  /** @param {import("./about.js").Model} model */
  setModel({ metadata, unknown }) {
    this.picture.unknown = unknown;
    for (const side of SIDES) {
      this.languages[side] = languageOf(metadata, side);
      this.names[side] = nameOf(this.languages[side], FALLBACKS[side]);
      byId(`${side}-name`).textContent = this.names[side];
      byId(side).lang = this.languages[side];
    }
    for (const id of ["choices", "spoken"]) byId(id).lang = this.languages.target;
    const isNamed = SIDES.every((side) => this.languages[side]);
    const title = isNamed ? `${this.names.source} to ${this.names.target}` : "Translator";
    byId("title").textContent = document.title = title;
  }

  /**
   * @param {(Translation[] | undefined)[]} answers Of each line, as far as there are any.
   * @param {boolean} isComplete
   */
  show(answers, isComplete) {
    this.answers = answers;
    this.isComplete = isComplete;
    const at = this.cursor();
    const isNew = answers[at] !== this.found || at !== this.line;
    // What is known of a line stays until its successor is there.
    if (isNew && (answers[at] || isComplete)) this.showLine();
    else this.showTarget();
    setText(byId("note"), truncationNote(answers.map((x) => x?.[0].truncated ?? false)));
    clearTimeout(this.timer);
    if (isComplete) this.timer = setTimeout(() => this.speak(), SPOKEN_AFTER);
  }

  /** @returns {number} The line in which the cursor is. */
  cursor() {
    return this.source.value.slice(0, this.source.selectionStart).split("\n").length - 1;
  }

  /** The cursor may have moved. */
  follow() {
    if (this.cursor() !== this.line) this.showLine();
  }

  showLine() {
    this.line = this.cursor();
    this.found = this.answers[this.line];
    this.showChoices();
    this.showChosen();
  }

  /** @param {number} index Which of the line's translations is looked at. */
  choose(index) {
    if (this.found) this.chosen.set(this.found, index);
    this.showChosen();
  }

  showChosen() {
    this.showTarget();
    this.picture.show(this.chosenOf(this.found), this.languages, this.names);
  }

  showTarget() {
    const translations = this.answers.map((found) => this.chosenOf(found));
    this.target.show(translations, this.line, this.isComplete);
  }

  /** @param {Translation[] | undefined} found */
  chosenOf(found) {
    return found?.[this.chosen.get(found) ?? 0];
  }

  /** A list of all translations of the line, unless there is but one. */
  showChoices() {
    const found = this.found ?? [];
    const chosen = found.indexOf(/** @type {Translation} */ (this.chosenOf(this.found)));
    byId("others").hidden = found.length < 2;
    byId("choices").replaceChildren(...found.map((x, i) => choice(x, i, i === chosen)));
  }

  /** For a screen reader, when the typing has paused. */
  speak() {
    const texts = this.answers.map((found) => this.chosenOf(found)?.text ?? "");
    const said = news(texts, this.spoken);
    this.spoken = texts;
    if (said) byId("spoken").textContent = said;
  }
}

/**
 * @param {Translation} translation
 * @param {number} index
 * @param {boolean} isChosen
 */
function choice({ text, score }, index, isChosen) {
  const label = element("label", "");
  const button = element("input", "", { type: "radio", name: "choice", value: `${index}` });
  button.checked = isChosen;
  const number = element("span", score.toFixed(2).replace("-", "\u2212"), { class: "score", lang: "en" });
  label.append(button, element("span", text), number);
  return label;
}
