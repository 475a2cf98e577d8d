/** The page: what is typed is translated by a worker, and shown. */

import { Client } from "./client.js";
import { byId } from "./element.js";
import { Lines } from "./lines.js";
import { startServiceWorker } from "./offline.js";
import { openingOf } from "./opening.js";
import * as state from "./state.js";
import { View } from "./view.js";

const MODEL = "model.tflite"; // where `keras-luong export --web` puts it
const PAUSE = 120; // milliseconds without a key, after which is translated

/** @type {HTMLTextAreaElement} */
const source = byId("source");
const asked = new URLSearchParams(location.search);
// One more makes a sentence a tenth faster at best, so there are more on demand alone.
const threads = Math.trunc(
  Math.max(1, Math.min(Number(asked.get("threads")) || 1, navigator.hardwareConcurrency)),
);

/** How many files were asked for. */
let openings = 0;

start();

async function start() {
  const view = new View();
  await startServiceWorker(); // which gives the worker its headers
  const client = new Client(new Worker("worker.js"));
  const lines = new Lines(
    (line) => client.translate(line),
    (answers, isComplete) => view.show(answers, isComplete),
    (error) => state.showError(error.message),
  );
  const open = (/** @type {string | File} */ x) => load(x, client, lines, view);
  listenToText(lines, view);
  listenToFiles(open);
  const address = asked.get("model");
  if (address || (await isThere(MODEL))) open(address || MODEL);
  else state.askForModel();
}

/**
 * Of files that are asked for in quick succession the last is what is told of.
 *
 * @param {string | File} what
 * @param {Client} client
 * @param {Lines} lines
 * @param {View} view
 */
async function load(what, client, lines, view) {
  const opening = ++openings;
  const isLast = () => opening === openings;
  const asked = openingOf(what);
  state.showLoading(asked.name);
  try {
    const progress = (/** @type {number[]} */ ...[loaded, total]) =>
      isLast() && state.showProgress(loaded, total);
    const opened = await client.open({ ...asked, threads }, progress);
    state.setModel(asked.name, opened);
    view.setModel(opened);
    lines.forget();
    lines.set(source.value);
    enable();
    if (isLast()) state.showModel();
  } catch (error) {
    if (isLast()) state.showFailure(/** @type {Error} */ (error));
  }
}

/** Lets the user write, unless the user is somewhere else on the page. */
function enable() {
  const { activeElement } = document;
  const isFirst = source.disabled && activeElement === document.body;
  source.disabled = false;
  // The form is about to be closed.
  if (isFirst || byId("model").contains(activeElement)) source.focus();
}

/**
 * @param {Lines} lines
 * @param {View} view
 */
function listenToText(lines, view) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let pause;
  source.addEventListener("input", () => {
    clearTimeout(pause);
    pause = setTimeout(() => {
      state.hideError();
      lines.set(source.value);
    }, PAUSE);
  });
  for (const event of ["keyup", "pointerup"]) {
    source.addEventListener(event, () => view.follow());
  }
}

/** @param {(what: string | File) => void} open */
function listenToFiles(open) {
  /** @type {HTMLInputElement} */
  const file = byId("file");
  /** @type {HTMLInputElement} */
  const url = byId("url");
  file.addEventListener("change", () => {
    if (file.files?.length) open(file.files[0]);
    file.value = ""; // so that the same one can be chosen again
  });
  byId("open").addEventListener("submit", (event) => {
    event.preventDefault();
    if (url.value.trim()) open(url.value.trim());
  });
  listenToDrops(open);
}

/** @param {(what: File) => void} open */
function listenToDrops(open) {
  const { classList } = document.body;
  const hasFile = (/** @type {DragEvent} */ { dataTransfer }) =>
    dataTransfer?.types.includes("Files");
  document.addEventListener("dragover", (event) => {
    if (!hasFile(event)) return; // text goes where it is dropped
    event.preventDefault(); // so that it can be dropped
    classList.add("dropping");
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) classList.remove("dropping");
  });
  document.addEventListener("drop", (event) => {
    if (!hasFile(event)) return;
    event.preventDefault();
    classList.remove("dropping");
    const file = event.dataTransfer?.files[0];
    if (file) open(file);
  });
}

/**
 * @param {string} address
 * @returns {Promise<boolean>} Whether it is worth asking for: some servers do not answer
 *   this question, and without a network the file may have been kept.
 */
async function isThere(address) {
  try {
    return (await fetch(address, { method: "HEAD" })).status !== 404;
  } catch {
    return true;
  }
}
