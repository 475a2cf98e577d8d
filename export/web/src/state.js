/** What is said of the model: that it is loaded, what it is, or what is wrong. */

import { details, megabytes, summary } from "./about.js";
import { byId, setText } from "./element.js";

const state = byId("state");
const error = byId("error");
/** @type {HTMLProgressElement} */
const progress = byId("progress");
/** @type {HTMLDetailsElement} */
const model = byId("model");
/** The name of the model that is there, and what is said of it. */
let inUse = { name: "", about: "There is no model." };

/** @param {string} name Of the file that is loaded. */
export function showLoading(name) {
  setText(state, `Loading ${name} …`);
  error.hidden = true;
  progress.hidden = false;
  progress.removeAttribute("value");
}

/**
 * @param {number} loaded In bytes.
 * @param {number} total 0 if it is not known.
 */
export function showProgress(loaded, total) {
  if (total) progress.value = loaded / total;
  progress.title = megabytes(loaded);
}

/**
 * @param {string} name
 * @param {import("./about.js").Model} about
 */
export function setModel(name, about) {
  inUse = { name, about: summary(name, about) };
  byId("about").replaceChildren(...details(about));
}

/** Nothing is loaded any more. */
export function showModel() {
  progress.hidden = true;
  error.hidden = true;
  model.open = false;
  setText(state, inUse.about);
}

/** Asks for a file, as there is none beside the page. */
export function askForModel() {
  progress.hidden = true;
  setText(state, "Drop a .tflite file here, or open one below.");
  model.open = true;
}

/** @param {Error} reason Why a file cannot be opened. */
export function showFailure({ message }) {
  progress.hidden = true;
  setText(state, inUse.about);
  showError(inUse.name ? `${message} “${inUse.name}” is still in use.` : message);
  if (!inUse.name) model.open = true;
}

/** @param {string} message What is wrong. */
export function showError(message) {
  error.textContent = message;
  error.hidden = false;
}

/** What was wrong no longer is. */
export function hideError() {
  error.hidden = true;
}
