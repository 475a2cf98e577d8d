/** The page: what is typed is translated by a worker, and shown. */

import { Client } from "./client.js";
import { byId } from "./element.js";
import { Lines } from "./lines.js";
import { startServiceWorker } from "./offline.js";
import * as state from "./state.js";
import { View } from "./view.js";

/** @typedef {import("./worker.js").Opening} Opening */

const MODEL = "model.tflite"; // where `keras-luong export --web` puts it
const PAUSE = 120; // milliseconds without a key, after which is translated

/** @type {HTMLTextAreaElement} */
const source = byId("source");
const asked = new URLSearchParams(location.search);
// One more makes a sentence a tenth faster at best, so there are more on demand alone.
const threads = Math.trunc(
  Math.max(1, Math.min(Number(asked.get("threads")) || 1, navigator.hardwareConcurrency)),
);

start();

async function start() {
  const view = new View();
  await startServiceWorker(); // which gives the worker its headers
  const client = new Client(new Worker("worker.js"));
  const lines = new Lines(
    (line) => client.translate(line),
    (answers, isComplete) => view.show(answers, isComplete),
    (error) => state.showError(error, ""),
  );
  const open = (/** @type {Opening} */ x) => load(x, client, lines, view);
  listenToText(lines, view);
  listenToFiles(open);
  const address = asked.get("model");
  if (address || (await isThere(MODEL))) open(at(address ?? MODEL));
  else state.askForModel();
}

/**
 * @param {Opening} opening
 * @param {Client} client
 * @param {Lines} lines
 * @param {View} view
 */
async function load(opening, client, lines, view) {
  state.showLoading(opening.name);
  try {
    const opened = await client.open({ ...opening, threads }, state.showProgress);
    state.showModel(opening.name, opened);
    view.setModel(opened.metadata);
    lines.forget();
    lines.set(source.value);
    if (source.disabled) enable();
  } catch (error) {
    const what = source.disabled ? "There is no model." : "The model is the one of before.";
    state.showError(/** @type {Error} */ (error), what);
  }
}

function enable() {
  source.disabled = false;
  if (document.activeElement === document.body) source.focus();
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

/** @param {(opening: Opening) => void} open */
function listenToFiles(open) {
  /** @type {HTMLInputElement} */
  const file = byId("file");
  /** @type {HTMLInputElement} */
  const url = byId("url");
  const openFile = (/** @type {File | undefined} */ x) => x && open({ name: x.name, file: x });
  file.addEventListener("change", () => openFile(file.files?.[0]));
  byId("open").addEventListener("submit", (event) => {
    event.preventDefault();
    if (url.value.trim()) open(at(url.value.trim()));
  });
  const { classList } = document.body;
  document.addEventListener("dragover", (event) => {
    event.preventDefault(); // so that it can be dropped
    classList.add("dropping");
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) classList.remove("dropping");
  });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    classList.remove("dropping");
    openFile(event.dataTransfer?.files[0]);
  });
}

/**
 * @param {string} address Of a file, from the page's own.
 * @returns {Opening}
 */
function at(address) {
  const { href, pathname } = new URL(address, location.href);
  return { name: decodeURIComponent(pathname.split("/").pop() || address), url: href };
}

/** @param {string} address */
async function isThere(address) {
  try {
    return (await fetch(address, { method: "HEAD" })).ok;
  } catch {
    return true; // without a network: it may have been kept
  }
}
