/**
 * What a user does, in Chromium: `node browser.js SCENARIO < question.json > answer.json`.
 * A question has `chromium` (the program), `url` (of the page) and what the scenario needs.
 */
import { appendFileSync, readFileSync, writeFileSync } from "node:fs";

import { chromium } from "playwright-core";

import { crc32 } from "../src/zip.js";

const PATIENCE = 60_000;
const [name] = process.argv.slice(2);
const question = JSON.parse(readFileSync(0, "utf-8"));
const browser = await chromium.launch({
  executablePath: question.chromium,
  args: ["--no-sandbox"],
});

/** A page that is open: `said` is what it printed, `requests` what it asked for. */
async function visit(options = {}, address = question.url) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  const said = [];
  const requests = [];
  page.on("console", (message) => said.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => said.push(`error: ${error.message}`));
  context.on("request", (request) => requests.push(request.url()));
  await page.goto(address);
  return { context, page, said, requests };
}

const ready = (page) => page.waitForSelector("#source:not([disabled])");

/** Waits until all that was typed is translated. */
async function settled(page) {
  await page.waitForTimeout(200); // the page waits for a pause in the typing
  await page.waitForSelector("#target[aria-busy=false]");
}

const lines = (page) => page.locator("#target p").allTextContents();
const text = (page, selector) => page.locator(selector).textContent();
const focused = (page) =>
  page.evaluate(() => {
    const { activeElement: at } = document;
    const word = at?.closest("#figure") && `${at.textContent}: ${described(at)}`;
    return at?.id || word || at?.getAttribute("value") || at?.tagName;

    /** @param {Element} at */
    function described(at) {
      return document.getElementById(at.getAttribute("aria-describedby"))?.textContent;
    }
  });

async function fill(page, value) {
  await page.fill("#source", value);
  await settled(page);
}

/** Drops a file on the page. */
async function drop(page, file, content) {
  const transfer = await page.evaluateHandle(
    ({ file, content }) => {
      const bytes = Uint8Array.from(atob(content), (x) => x.charCodeAt(0));
      const made = new DataTransfer();
      made.items.add(new File([bytes], file));
      return made;
    },
    { file, content },
  );
  await page.dispatchEvent("main", "drop", { dataTransfer: transfer });
}

const isServed = () =>
  fetch(question.url).then(
    () => true,
    () => false,
  );

/** The renderers' memory in megabytes. */
async function memory() {
  const session = await browser.newBrowserCDPSession();
  const { processInfo } = await session.send("SystemInfo.getProcessInfo");
  const renderers = processInfo.filter(({ type }) => type === "renderer");
  const pages = renderers.map(({ id }) =>
    Number(readFileSync(`/proc/${id}/statm`, "utf-8").split(" ")[1]),
  );
  return (4096 * pages.reduce((a, b) => a + b, 0)) / 1e6;
}

const SCENARIOS = {
  /** What the page's own worker says of texts, given as bytes in base64. */
  async worker() {
    const { page } = await visit();
    await ready(page);
    return page.evaluate(inWorker, question);
  },

  /** What stands on the page when texts are filled in, one after the other. */
  async texts() {
    const { page, said, requests } = await visit();
    await ready(page);
    const found = [];
    for (const value of question.texts) {
      await fill(page, value);
      const cut = await page.$$eval("#target p", (x) => x.map((p) => p.matches(".cut")));
      found.push({ lines: await lines(page), note: await text(page, "#note"), cut });
    }
    const choices = await page.locator("#choices label span:first-of-type").allTextContents();
    return { found, choices, said, requests, title: await page.title() };
  },

  /** From the first visit to the first translation, in milliseconds. */
  async first() {
    const start = performance.now();
    const { page } = await visit();
    await ready(page);
    const loaded = performance.now();
    await page.fill("#source", question.text);
    await page.waitForSelector("#target p:not(:empty)");
    const end = performance.now();
    return { load: loaded - start, translation: end - loaded, lines: await lines(page) };
  },

  /** Many translations in a row. */
  async memory() {
    const { page } = await visit({}, `${question.url}?model=${question.model}`);
    await ready(page);
    const used = [];
    for (let i = 0; i < question.times; i++) {
      if (i % 100 === 0) used.push(await memory());
      await fill(page, `${question.text} ${i}`);
    }
    used.push(await memory());
    return { used, lines: await lines(page) };
  },

  /** Everything by the keyboard alone. */
  async keyboard() {
    const { page } = await visit();
    await ready(page);
    const steps = [];
    const note = async (what) => steps.push([what, await focused(page)]);
    await note("start");
    await page.keyboard.type(question.text);
    await settled(page);
    const best = await lines(page);
    for (const key of ["Tab", "ArrowDown"]) {
      await page.keyboard.press(key);
      await note(key);
    }
    const second = await lines(page);
    for (const key of ["Tab", "End", "ArrowLeft", "Tab", "ArrowRight", "Alt+ArrowUp"]) {
      await page.keyboard.press(key);
      await note(key);
    }
    const caption = await text(page, "#caption");
    for (const key of ["Tab", "Enter", "Tab", "Tab"]) {
      await page.keyboard.press(key);
      await note(key);
    }
    await page.keyboard.type("nowhere.tflite");
    await page.keyboard.press("Enter");
    await page.waitForSelector("#error:not([hidden])");
    const error = await text(page, "#error");
    await page.fill("#url", "words.tflite");
    await page.keyboard.press("Enter");
    await page.waitForSelector("#error", { state: "hidden" });
    await page.waitForFunction(() => !document.querySelector("#model[open]"));
    await page.waitForTimeout(100); // a browser takes the focus from what is hidden
    await note("opened");
    return { steps, best, second, caption, error };
  },

  /** On a telephone. */
  async phone() {
    const options = { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true };
    const { page } = await visit(options);
    await ready(page);
    await fill(page, question.text);
    await page.locator("#target-words button").first().tap();
    return page.evaluate(measured);

    function measured() {
      const box = (id) => document.getElementById(id)?.getBoundingClientRect().toJSON();
      const small = [...document.querySelectorAll("#figure button, summary, #choices label")];
      const source = document.getElementById("source");
      return {
        width: document.documentElement.scrollWidth,
        source: box("source"),
        target: box("target"),
        words: [box("source-words"), box("target-words")],
        fontSize: parseFloat(source ? getComputedStyle(source).fontSize : "0"),
        heights: small.map((x) => x.getBoundingClientRect().height),
        caption: document.getElementById("caption")?.textContent,
        title: document.title,
      };
    }
  },

  /** A telephone, and a word that has no end. */
  async endless() {
    const { page } = await visit({ viewport: { width: 360, height: 740 } });
    await ready(page);
    await fill(page, question.text);
    return page.evaluate(() => {
      const rows = ["source-words", "target-words"].map((id) => document.getElementById(id));
      return {
        heights: rows.map((row) => row?.getBoundingClientRect().height),
        widths: rows.map((row) => row?.getBoundingClientRect().width),
        words: [...(rows[0]?.children ?? [])].map((x) => x.textContent),
      };
    });
  },

  /** The picture of attention, and what becomes of it under the pointer. */
  async figure() {
    const { page } = await visit();
    await ready(page);
    await fill(page, question.text);
    await page.locator("#target-words button").nth(question.word).hover();
    await page.waitForTimeout(400);
    return page.evaluate(() => {
      const of = (selector, read) => [...document.querySelectorAll(selector)].map(read);
      const weight = (x) => Number(x.style.getPropertyValue("--weight"));
      return {
        lines: of("#links path", (x) => ({
          source: Number(x.dataset.source),
          target: Number(x.dataset.target),
          weight: weight(x),
          isBright: getComputedStyle(x).opacity === "1",
          isLong: x.getTotalLength() > 20,
        })),
        shading: of("#source-words button", weight),
        colors: of("#source-words button", (x) => getComputedStyle(x).backgroundColor),
        languages: of("#figure button", (x) => x.lang),
        words: of("#source-words button", (x) => x.textContent),
        caption: document.getElementById("caption")?.textContent,
        // Below the text, whatever the figure's height.
        order: of("main > section", (x) => x.id),
      };
    });
  },

  /** Several lines: how they appear, what is announced, which translation is looked at. */
  async lines() {
    const { page } = await visit({}, `${question.url}?model=${question.model}`);
    await ready(page);
    await page.evaluate(watch);
    await fill(page, question.text);
    const snapshots = await page.evaluate(() => self.snapshots);
    await page.waitForTimeout(1200); // a screen reader is told after a pause
    const spoken = [await text(page, "#spoken")];
    const all = await lines(page);
    await page.locator("#choices input").nth(1).check();
    const second = await lines(page);
    const cursor = async (at) => {
      await page.focus("#source");
      await page.keyboard.press(at);
    };
    await cursor("Control+Home");
    const elsewhere = await page.locator("#choices input:checked").getAttribute("value");
    const without = await lines(page);
    await cursor("Control+End");
    const back = await page.locator("#choices input:checked").getAttribute("value");
    await fill(page, `${question.text}\n${question.added}`);
    await page.waitForTimeout(1200);
    spoken.push(await text(page, "#spoken"));
    const directions = await page.$$eval("#target p", (x) => x.map((p) => p.dir));
    return { snapshots, spoken, all, second, elsewhere, without, back, directions };

    /** Notes what stands in the lines whenever it has changed. */
    function watch() {
      self.snapshots = [];
      const target = document.getElementById("target");
      new MutationObserver(() => {
        const lines = [...target.children].map((p) => ({
          text: p.textContent,
          isDone: !p.matches(".stale"),
          opacity: getComputedStyle(p).opacity,
        }));
        self.snapshots.push({ lines, isBusy: target.ariaBusy === "true" });
      }).observe(target, { childList: true, subtree: true, characterData: true });
    }
  },

  /** Small things: rings, what is dragged, files in quick succession, errors that pass. */
  async manners() {
    const { page } = await visit();
    await ready(page);
    await fill(page, question.text);
    await page.focus("#source");
    const rings = await page.evaluate(() =>
      ["#source", ".pane"].map((x) => getComputedStyle(document.querySelector(x)).outlineStyle),
    );
    const isTextKept = await page.evaluate(() => {
      const dataTransfer = new DataTransfer();
      dataTransfer.setData("text/plain", "a cat");
      const event = new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true });
      return document.getElementById("source")?.dispatchEvent(event);
    });
    await drop(page, "bad.tflite", "");
    await page.waitForSelector("#error:not([hidden])");
    const failed = { state: await text(page, "#state"), error: await text(page, "#error") };
    await fill(page, `${question.text} again`);
    const later = {
      state: await text(page, "#state"),
      isWrong: await page.locator("#error").isVisible(),
    };
    await page.evaluate(inSuccession);
    await page.waitForFunction(() =>
      document.getElementById("state")?.textContent?.startsWith("words.tflite, "),
    );
    const isWrong = await page.locator("#error").isVisible();
    return { rings, isTextKept, failed, later, isWrong };

    /** A file that is bad, and a good one before that is known. */
    function inSuccession() {
      const dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File([""], "bad.tflite"));
      const main = document.querySelector("main");
      main.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true }));
      document.getElementById("url").value = "words.tflite";
      document.getElementById("open").requestSubmit();
    }
  },

  /** What the page says at addresses of its own, when it has finished loading. */
  async addresses() {
    const found = [];
    for (const query of question.queries) {
      const { page, context } = await visit({}, `${question.url}${query}`);
      await page.waitForFunction(
        () => !document.getElementById("state")?.textContent?.startsWith("Loading"),
      );
      const isWrong = await page.locator("#error").isVisible();
      const isOpen = await page.locator("#model[open]").isVisible();
      const error = isWrong ? await text(page, "#error") : null;
      found.push({ state: await text(page, "#state"), error, isOpen });
      await context.close();
    }
    return found;
  },

  /** A visit, another one of a newer page, and one when the server is gone. */
  async update() {
    const { page, context } = await visit();
    await ready(page);
    const kept = () =>
      page.evaluate(async () => {
        const caches_ = await Promise.all((await caches.keys()).map((x) => caches.open(x)));
        const requests = await Promise.all(caches_.map((x) => x.keys()));
        return requests.flat().map(({ url }) => new URL(url).pathname);
      });
    const before = await kept();
    // Another release, as far as the browser can tell.
    const style = `${question.folder}/style.css`;
    const old = crc32(readFileSync(style));
    appendFileSync(style, "\n");
    const worker = `${question.folder}/service_worker.js`;
    const written = readFileSync(worker, "utf-8");
    const fresh = crc32(readFileSync(style));
    writeFileSync(worker, written.replace(`${old}`, `${fresh}`));
    const next = await context.newPage();
    await next.goto(`${question.url}?model=words.tflite`); // which does not load the other
    await ready(next);
    await next.evaluate(async () => {
      const registration = await navigator.serviceWorker.ready;
      await registration.update(); // a browser takes its time
      const isNew = () => registration.active?.state === "activated";
      while (registration.installing || registration.waiting || !isNew()) {
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    });
    const after = await kept();
    await page.close();
    await next.close();
    process.stdout.write("ready\n");
    while (await isServed()) await new Promise((resolve) => setTimeout(resolve, 100));
    const last = await context.newPage();
    last.setDefaultTimeout(PATIENCE);
    await last.goto(question.url);
    await ready(last);
    await fill(last, question.text);
    return { before, after, lines: await lines(last) };
  },

  /** The server has half of the model at the second visit, and at the third it is gone. */
  async replaced() {
    const { page, context } = await visit();
    await ready(page);
    const model = `${question.folder}/model.tflite`;
    const whole = readFileSync(model);
    writeFileSync(model, whole.subarray(0, whole.length / 2));
    const next = await context.newPage();
    await next.goto(question.url);
    await next.locator("#error").waitFor();
    const error = await next.locator("#error").textContent();
    await page.close();
    await next.close();
    process.stdout.write("ready\n");
    while (await isServed()) await new Promise((resolve) => setTimeout(resolve, 100));
    const last = await context.newPage();
    last.setDefaultTimeout(PATIENCE);
    await last.goto(question.url);
    await ready(last);
    await fill(last, question.text);
    return { error, lines: await lines(last) };
  },

  /** What axe-core finds, in each state of the page. */
  async axe() {
    const axe = readFileSync(new URL("../node_modules/axe-core/axe.min.js", import.meta.url));
    const found = [];
    for (const colorScheme of ["light", "dark"]) {
      const { page } = await visit({ colorScheme });
      const check = async (state) => {
        await page.evaluate(`${axe}; undefined`);
        const { violations, passes } = await page.evaluate("axe.run()");
        const ids = violations.map((x) => `${x.impact}: ${x.id}: ${x.nodes[0].html}`);
        found.push({ state: `${state}, ${colorScheme}`, violations: ids, passes: passes.length });
      };
      await ready(page);
      await check("empty");
      await fill(page, question.text);
      await page.locator("#target-words button").first().focus();
      await check("translated");
      await page.locator("summary").click();
      await drop(page, "x.tflite", "");
      await page.waitForSelector("#error:not([hidden])");
      await check("with an error");
    }
    return found;
  },

  /** What the page may not do, nor its worker. */
  async policy() {
    const { page, requests } = await visit();
    await ready(page);
    await fill(page, question.text);
    const attempts = async (other) => {
      const tried = {};
      const attempt = async (what, run) => {
        try {
          await run();
          tried[what] = "allowed";
        } catch (error) {
          tried[what] = String(error);
        }
      };
      await attempt("fetch", () => fetch(other, { mode: "no-cors" }));
      // Not at once, as what DevTools start may do so.
      await attempt("eval", () =>
        new Promise((resolve, reject) => {
          setTimeout(() => {
            try {
              resolve((0, eval)("1"));
            } catch (error) {
              reject(error);
            }
          });
        }),
      );
      await attempt("socket", () =>
        new Promise((resolve, reject) => {
          const socket = new WebSocket(other.replace("http", "ws"));
          socket.onopen = resolve;
          socket.onerror = () => reject(new Error("closed"));
        }),
      );
      return tried;
    };
    const [worker] = page.workers();
    const image = await page.evaluate(
      (other) =>
        new Promise((resolve) => {
          const image = new Image();
          image.onload = () => resolve("allowed");
          image.onerror = () => resolve("refused");
          image.src = `${other}x.png`;
        }),
      question.other,
    );
    return {
      requests,
      image,
      page: await page.evaluate(attempts, question.other),
      worker: await worker.evaluate(attempts, question.other),
    };
  },

  /** Files that are dropped, and what the page says of each. */
  async drops() {
    const { page } = await visit();
    await ready(page);
    await fill(page, question.text);
    const found = [];
    for (const { file, content } of question.files) {
      await page.evaluate(() => {
        /** @type {any} */ (document.getElementById("state")).textContent = "";
      });
      await drop(page, file, content);
      await page.waitForFunction(
        () => !/^$|Loading/.test(document.getElementById("state")?.textContent ?? ""),
      );
      await settled(page);
      const isWrong = await page.locator("#error").isVisible();
      found.push({
        state: await text(page, "#state"),
        error: isWrong ? await text(page, "#error") : null,
        lines: await lines(page),
      });
    }
    return found;
  },

  /** A visit, then another when the server is gone: Python ends it in between. */
  async offline() {
    const { page, context } = await visit();
    await ready(page);
    await fill(page, question.text);
    const before = await lines(page);
    process.stdout.write("ready\n");
    while (await isServed()) await new Promise((resolve) => setTimeout(resolve, 100));
    const again = await context.newPage();
    again.setDefaultTimeout(PATIENCE);
    await page.close();
    await again.goto(question.url);
    await ready(again);
    await fill(again, question.text);
    const isIsolated = await again.evaluate(() => self.crossOriginIsolated);
    return { before, after: await lines(again), isIsolated };
  },
};

/** Runs in the page: a worker of its own, asked about texts. */
async function inWorker({ model, texts, options = {} }) {
  const worker = new Worker("worker.js");
  let last = 0;
  const ask = (message) =>
    new Promise((resolve, reject) => {
      const id = ++last;
      const listen = ({ data }) => {
        if (data.id !== id || data.progress) return;
        worker.removeEventListener("message", listen);
        if (data.error === undefined) resolve(data.answer);
        else reject(new Error(data.error));
      };
      worker.addEventListener("message", listen);
      worker.postMessage({ id, ...message });
    });
  await ask({ open: { name: model, url: model, ...options } });
  const answers = [];
  const times = [];
  for (const text of texts) {
    const bytes = Uint8Array.from(atob(text), (x) => x.charCodeAt(0));
    const start = performance.now();
    const found = await ask({ translate: bytes });
    times.push(performance.now() - start);
    answers.push(found.map((x) => ({ ...x, alignment: x.alignment.map((y) => [...y]) })));
  }
  worker.terminate();
  return { answers, times };
}

try {
  const answer = await SCENARIOS[name]();
  process.stdout.write(JSON.stringify(answer));
} finally {
  await browser.close();
}
