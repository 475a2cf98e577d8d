/** The picture of attention: words of both sides, and lines between them. */

import { byId, element } from "./element.js";
import { linksOf } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const FAINTEST = 0.05; // less attention than that has no line
const MENTIONED = 4; // words in the caption, at most
const LONGEST = 30; // letters of a word that are shown

/**
 * @typedef {"source" | "target"} Side
 * @typedef {{side: Side, index: number}} Place
 */

/** Shows the attention of one translation. */
export class AttentionPicture {
  constructor() {
    this.section = byId("attention");
    this.figure = byId("figure");
    /** @type {SVGElement} */
    this.svg = byId("links");
    this.rows = { source: byId("source-words"), target: byId("target-words") };
    /** @type {import("./words.js").Links} */
    this.links = { source: [], target: [], weights: [] };
    /** @type {import("./translator.js").Unknown | undefined} */
    this.unknown = undefined;
    for (const side of /** @type {Side[]} */ (["source", "target"])) this.listen(side);
    new ResizeObserver(() => this.arrange()).observe(this.section);
  }

  /** @param {Side} side */
  listen(side) {
    const row = this.rows[side];
    const at = (/** @type {Event} */ event) => {
      const index = [...row.children].indexOf(/** @type {Element} */ (event.target));
      return index < 0 ? undefined : { side, index };
    };
    row.addEventListener("pointerover", (event) => this.point(at(event)));
    row.addEventListener("pointerleave", () => this.point(this.focused()));
    row.addEventListener("focusin", (event) => this.point(at(event)));
    row.addEventListener("focusout", () => this.point(undefined));
    row.addEventListener("keydown", (event) => moveFocus(row, event));
  }

  /**
   * @param {import("./translator.js").Translation | undefined} translation
   * @param {Record<Side, string>} languages
   * @param {Record<Side, string>} names Of the languages, for people.
   */
  show(translation, languages, names) {
    const links = linksOf(translation ?? { tokens: [], sourceTokens: [], alignment: [] });
    const source = links.source.map((word) => this.legible(word, "source"));
    const target = links.target.map((word) => this.legible(word, "target"));
    this.links = { source, target, weights: links.weights };
    this.section.hidden = !source.length || !target.length;
    for (const side of /** @type {Side[]} */ (["source", "target"])) {
      // The caption is in the page's language, which the words are not.
      const about = { type: "button", lang: languages[side], "aria-describedby": "caption" };
      const words = this.links[side].map((word) => element("button", word, about));
      words.forEach((word, i) => (word.tabIndex = i ? -1 : 0));
      this.rows[side].replaceChildren(...words);
      this.rows[side].setAttribute("aria-label", `Words: ${names[side]}`);
    }
    this.arrange();
    this.point(undefined);
  }

  /**
   * @param {string} word
   * @param {Side} side
   * @returns {string} As a text has it, and not endlessly long, as what has no spaces may be.
   */
  legible(word, side) {
    const { piece, text } = this.unknown?.[side] ?? { piece: "", text: "" };
    const letters = [...(piece && text ? word.replaceAll(piece, text) : word)];
    const isLong = letters.length > LONGEST;
    return isLong ? `${letters.slice(0, LONGEST).join("")}…` : letters.join("");
  }

  /** Puts the words side by side if there is room, else one below the other. */
  arrange() {
    if (this.section.hidden) return;
    this.figure.classList.remove("upright");
    const { scrollWidth, clientWidth } = this.figure;
    this.figure.classList.toggle("upright", scrollWidth > clientWidth);
    this.draw();
  }

  /** Draws a line for every two words, the darker the more attention there is. */
  draw() {
    const box = this.figure.getBoundingClientRect();
    const lines = this.links.weights.flatMap((row, t) =>
      row.map((weight, s) => (weight < FAINTEST ? null : this.line(s, t, weight, box))),
    );
    this.svg.replaceChildren(...lines.filter((line) => line !== null));
    this.svg.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
  }

  /**
   * @param {number} s
   * @param {number} t
   * @param {number} weight
   * @param {DOMRect} box
   */
  line(s, t, weight, box) {
    const from = this.rows.source.children[s].getBoundingClientRect();
    const to = this.rows.target.children[t].getBoundingClientRect();
    const line = document.createElementNS(SVG, "path");
    const isUpright = this.figure.classList.contains("upright");
    line.setAttribute("d", isUpright ? across(from, to, box) : down(from, to, box));
    line.style.setProperty("--weight", weight.toFixed(3));
    line.dataset.source = String(s);
    line.dataset.target = String(t);
    return line;
  }

  /**
   * Shows what one word has to do with those of the other side.
   *
   * @param {Place | undefined} place
   */
  point(place) {
    this.figure.classList.toggle("pointing", place !== undefined);
    for (const side of /** @type {Side[]} */ (["source", "target"])) {
      [...this.rows[side].children].forEach((child, index) => {
        const word = /** @type {HTMLElement} */ (child);
        const isIt = place?.side === side && place.index === index;
        const weight = !place || place.side === side ? 0 : this.between(place, index);
        word.classList.toggle("pointed", isIt);
        word.style.setProperty("--weight", weight.toFixed(3));
      });
    }
    for (const child of this.svg.children) {
      const line = /** @type {SVGElement} */ (child);
      line.classList.toggle("pointed", line.dataset[place?.side ?? ""] === `${place?.index}`);
    }
    byId("caption").textContent = place ? this.sentence(place) : "";
  }

  /** @returns {Place | undefined} The word that has the keyboard's focus. */
  focused() {
    for (const side of /** @type {Side[]} */ (["source", "target"])) {
      const words = [...this.rows[side].children];
      const index = words.indexOf(/** @type {Element} */ (document.activeElement));
      if (index >= 0) return { side, index };
    }
    return undefined;
  }

  /**
   * @param {Place} place
   * @param {number} other The index of a word on the other side.
   */
  between({ side, index }, other) {
    const { weights } = this.links;
    return side === "target" ? weights[index][other] : weights[other][index];
  }

  /** @param {Place} place */
  sentence(place) {
    const word = this.links[place.side][place.index];
    const verb = place.side === "target" ? "looked at" : "was looked at by";
    return `“${word}” ${verb} ${this.told(place) || "nothing in particular"}`;
  }

  /**
   * @param {Place} place
   * @returns {string} The other side's words that count most, and how much.
   */
  told(place) {
    const other = place.side === "target" ? "source" : "target";
    return this.links[other]
      .map((word, i) => ({ word, weight: this.between(place, i) }))
      .filter(({ weight }) => weight >= FAINTEST)
      .sort((a, b) => b.weight - a.weight)
      .slice(0, MENTIONED)
      .map(({ word, weight }) => `“${word}” ${Math.round(100 * weight)} %`)
      .join(", ");
  }
}

/**
 * From one word to another below it.
 *
 * @param {DOMRect} from
 * @param {DOMRect} to
 * @param {DOMRect} box
 */
function down(from, to, box) {
  const [x, y] = [from.x + from.width / 2 - box.x, from.bottom - box.y];
  const [X, Y] = [to.x + to.width / 2 - box.x, to.top - box.y];
  return `M${x} ${y}C${x} ${(y + Y) / 2} ${X} ${(y + Y) / 2} ${X} ${Y}`;
}

/**
 * From one word to another beside it.
 *
 * @param {DOMRect} from
 * @param {DOMRect} to
 * @param {DOMRect} box
 */
function across(from, to, box) {
  const [x, y] = [from.right - box.x, from.y + from.height / 2 - box.y];
  const [X, Y] = [to.left - box.x, to.y + to.height / 2 - box.y];
  return `M${x} ${y}C${(x + X) / 2} ${y} ${(x + X) / 2} ${Y} ${X} ${Y}`;
}

/**
 * Moves within a row, which is one stop of the Tab key.
 *
 * @param {HTMLElement} row
 * @param {KeyboardEvent} event
 */
function moveFocus(row, event) {
  if (event.altKey || event.ctrlKey || event.metaKey) return; // the browser's own
  const words = /** @type {HTMLElement[]} */ ([...row.children]);
  const at = words.indexOf(/** @type {HTMLElement} */ (document.activeElement));
  const last = words.length - 1;
  const forward = getComputedStyle(row).direction === "rtl" ? -1 : 1;
  /** @type {Record<string, number>} */
  const places = {
    ArrowRight: at + forward,
    ArrowLeft: at - forward,
    ArrowDown: at + 1,
    ArrowUp: at - 1,
    Home: 0,
    End: last,
  };
  const to = Math.max(0, Math.min(last, places[event.key]));
  if (at < 0 || Number.isNaN(to)) return;
  event.preventDefault();
  words[at].tabIndex = -1;
  words[to].tabIndex = 0;
  words[to].focus();
}
