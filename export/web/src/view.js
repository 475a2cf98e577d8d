/** The translations of a text's lines, and of one of them all that is known. */

import { AttentionPicture } from "./attention.js";
import { byId, element } from "./element.js";
import { languageOf, nameOf } from "./languages.js";

/** @typedef {import("./translator.js").Translation} Translation */
/** @typedef {"source" | "target"} Side */

const SIDES = /** @type {Side[]} */ (["source", "target"]);
const FALLBACKS = { source: "Source", target: "Translation" };
const SPOKEN_AFTER = 900; // milliseconds without a change
const TRUNCATED = "This is longer than the model reads: only its beginning is translated.";

/** Shows what was found. */
export class View {
  constructor() {
    /** @type {HTMLTextAreaElement} */
    this.source = byId("source");
    this.target = byId("target");
    this.picture = new AttentionPicture();
    this.languages = { source: "", target: "" };
    this.names = { ...FALLBACKS };
    /** @type {(Translation[] | undefined)[]} An answer for each line, best first. */
    this.answers = [];
    /** The line in which the cursor is. */
    this.line = 0;
    /** @type {Translation[] | undefined} Its translations, best first. */
    this.found = undefined;
    /** Which of them is looked at. */
    this.chosen = 0;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    byId("choices").addEventListener("change", ({ target }) => {
      this.choose(Number(/** @type {HTMLInputElement} */ (target).value));
    });
  }

  /** @param {any} metadata What a model says of itself. */
  setModel(metadata) {
    for (const side of SIDES) {
      this.languages[side] = languageOf(metadata, side);
      this.names[side] = nameOf(this.languages[side], FALLBACKS[side]);
      byId(`${side}-name`).textContent = this.names[side];
      byId(side).lang = this.languages[side];
    }
    byId("choices").lang = this.languages.target;
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
    this.target.ariaBusy = String(!isComplete);
    const found = answers[this.cursor()];
    // What stands there stays until its successor is there.
    if (found && (found !== this.found || this.cursor() !== this.line)) this.showLine();
    else if (found) this.showTarget();
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
    this.choose(0);
    byId("note").textContent = this.found?.[0].truncated ? TRUNCATED : "";
  }

  /** @param {number} index Which of the line's translations is looked at. */
  choose(index) {
    this.chosen = index;
    this.showTarget();
    this.picture.show(this.found?.[index], this.languages, this.names);
  }

  showTarget() {
    const paragraphs = this.answers.map((_, line) => this.paragraph(line));
    this.target.replaceChildren(...paragraphs);
  }

  /** @param {number} line */
  paragraph(line) {
    const made = element("p", this.text(line));
    made.classList.toggle("current", line === this.line && this.answers.length > 1);
    return made;
  }

  /** @param {number} line */
  text(line) {
    return this.answers[line]?.[line === this.line ? this.chosen : 0].text ?? "";
  }

  /** A list of all translations of the line, unless there is but one. */
  showChoices() {
    const found = this.found ?? [];
    byId("others").hidden = found.length < 2;
    byId("choices").replaceChildren(...found.map(choice));
  }

  /** For a screen reader, when the typing has paused. */
  speak() {
    byId("spoken").textContent = this.answers.map((_, line) => this.text(line)).join("\n");
  }
}

/**
 * @param {Translation} translation
 * @param {number} index
 */
function choice({ text, score }, index) {
  const label = element("label", "");
  const button = element("input", "", { type: "radio", name: "choice", value: `${index}` });
  button.checked = index === 0;
  const number = element("span", score.toFixed(2).replace("-", "\u2212"), { class: "score", lang: "en" });
  label.append(button, element("span", text), number);
  return label;
}
