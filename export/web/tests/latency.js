/**
 * How long a page takes: `node tests/latency.js FOLDER SENTENCES [MODEL.tflite ...]`.
 *
 * FOLDER is the page, SENTENCES a file, of which 100 lines are translated after those that
 * warm up. The models may lie anywhere; by default it is the folder's own. Prints a table; see
 * docs/web.md.
 */
import * as fs from "node:fs";
import http from "node:http";
import path from "node:path";

import { chromium } from "playwright-core";

import { HEADERS } from "../headers.js";

const COUNT = 100;
const WARM_UP = 5;
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css" };
const [folder, sentences, ...models] = process.argv.slice(2);
const texts = fs.readFileSync(sentences, "utf-8").split("\n").slice(0, COUNT + WARM_UP);

const nameOf = (/** @type {string} */ model) => `/${encodeURIComponent(path.basename(model))}`;
const FILES = new Map(models.map((model) => [nameOf(model), model]));
FILES.set("/", path.join(folder, "index.html"));

/** A server of files that gives the headers, so that threads are allowed at once. */
const server = http.createServer((request, response) => {
  const { pathname } = new URL(request.url ?? "", "http://x");
  const file = FILES.get(pathname) ?? path.join(folder, pathname);
  if (!fs.existsSync(file)) return response.writeHead(404).end();
  const type = TYPES[path.extname(file)] ?? "application/octet-stream";
  response.writeHead(200, { "Content-Type": type, ...HEADERS });
  return fs.createReadStream(file).pipe(response);
});

/** In a new browser, from its first request on. */
async function measure(model, threads) {
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
  try {
    const page = await browser.newPage();
    const start = performance.now();
    await page.goto(`http://127.0.0.1:${server.address().port}/?model=${encodeURIComponent(model)}`);
    await page.waitForSelector("#source:not([disabled])");
    await page.fill("#source", texts[0]);
    await page.waitForSelector("#target p:not(:empty)");
    const first = performance.now() - start;
    return { first, times: await page.evaluate(inWorker, { model, texts, threads }) };
  } finally {
    await browser.close();
  }
}

/** Runs in the page: how long each text takes a worker, in milliseconds. */
async function inWorker({ model, texts, threads }) {
  const worker = new Worker("worker.js");
  const ask = (message) =>
    new Promise((resolve, reject) => {
      const listen = ({ data }) => {
        if (data.progress) return;
        worker.removeEventListener("message", listen);
        if (data.error === undefined) resolve(data.answer);
        else reject(new Error(data.error));
      };
      worker.addEventListener("message", listen);
      worker.postMessage({ id: 1, ...message });
    });
  const opened = await ask({ open: { name: model, url: model, threads } });
  if (opened.threads !== threads) throw new Error("There are no threads here.");
  const times = [];
  for (const text of texts) {
    const start = performance.now();
    await ask({ translate: text });
    times.push(performance.now() - start);
  }
  return times;
}

await new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(undefined)));
console.log("| model | cores | from the first request to a translation | median | 95 % |");
console.log("|---|---:|---:|---:|---:|");
for (const model of models.length ? models.map(nameOf) : ["/model.tflite"]) {
  for (const threads of [1, 2]) {
    const { first, times } = await measure(model, threads);
    const sorted = times.slice(WARM_UP).sort((a, b) => a - b);
    const at = (share) => `${sorted[Math.floor(share * (sorted.length - 1))].toFixed(0)} ms`;
    const began = `${(first / 1000).toFixed(2)} s`;
    console.log(`| ${decodeURIComponent(model.slice(1))} | ${threads} | ${began} | ${at(0.5)} | ${at(0.95)} |`);
  }
}
server.close();
