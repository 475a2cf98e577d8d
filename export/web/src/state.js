/** What is said of the model: that it is loaded, what it is, or what is wrong. */

import { details, megabytes, summary } from "./about.js";
import { byId } from "./element.js";

const state = byId("state");
const error = byId("error");
/** @type {HTMLProgressElement} */
const progress = byId("progress");
/** @type {HTMLDetailsElement} */
const model = byId("model");

/** @param {string} name Of the file that is loaded. */
export function showLoading(name) {
  state.textContent = `Loading ${name} …`;
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
export function showModel(name, about) {
  progress.hidden = true;
  model.open = false;
  state.textContent = summary(name, about);
  byId("about").replaceChildren(...details(about));
}

/** Asks for a file, as there is none beside the page. */
export function askForModel() {
  progress.hidden = true;
  state.textContent = "Drop a .tflite file here, or open one below.";
  model.open = true;
}

/**
 * @param {Error} reason
 * @param {string} what It is that there is now.
 */
export function showError({ message }, what) {
  progress.hidden = true;
  state.textContent = what;
  error.textContent = message;
  error.hidden = false;
}

/** What was wrong no longer is. */
export function hideError() {
  error.hidden = true;
}
