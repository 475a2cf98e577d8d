import assert from "node:assert/strict";
import { test } from "node:test";

import { Lines } from "../src/lines.js";

/** Lines whose translations come when the test says so. */
function slowLines() {
  const asked = [];
  const shown = [];
  const errors = [];
  const lines = new Lines(
    (line) =>
      new Promise((resolve, reject) => {
        asked.push({ line, resolve: () => resolve(line.toUpperCase()), reject });
      }),
    (answers, isComplete) => shown.push({ answers, isComplete }),
    (error) => errors.push(error.message),
  );
  const last = () => shown[shown.length - 1];
  return { lines, asked, shown, errors, last, names: () => asked.map((x) => x.line) };
}

const settled = () => new Promise((resolve) => setTimeout(resolve, 0));

test("the latest text wins, and what lies between is never translated", async () => {
  const { lines, asked, last, names } = slowLines();
  for (const text of ["a", "ab", "abc", "abcd"]) lines.set(text);
  assert.deepEqual(names(), ["a"]);
  asked[0].resolve();
  await settled();
  assert.deepEqual(names(), ["a", "abcd"]);
  assert.deepEqual(last(), { answers: [undefined], isComplete: false });
  asked[1].resolve();
  await settled();
  assert.deepEqual(last(), { answers: ["ABCD"], isComplete: true });
});

test("a line that was translated is not again", async () => {
  const { lines, asked, last, names } = slowLines();
  lines.set("a\nb");
  asked[0].resolve();
  await settled();
  asked[1].resolve();
  await settled();
  lines.set("b\na\nb");
  assert.deepEqual(names(), ["a", "b"]);
  assert.deepEqual(last(), { answers: ["B", "A", "B"], isComplete: true });
});

test("an answer of a model that was replaced does not count", async () => {
  const { lines, asked, last, names } = slowLines();
  lines.set("a");
  lines.forget();
  lines.set("a");
  asked[0].resolve();
  await settled();
  assert.equal(last().isComplete, false);
  assert.deepEqual(names(), ["a", "a"]);
  asked[1].resolve();
  await settled();
  assert.deepEqual(last(), { answers: ["A"], isComplete: true });
});

test("after an error the next text is translated", async () => {
  const { lines, asked, errors, last } = slowLines();
  lines.set("a");
  asked[0].reject(new Error("no memory"));
  await settled();
  assert.deepEqual(errors, ["no memory"]);
  lines.set("b");
  asked[1].resolve();
  await settled();
  assert.deepEqual(last(), { answers: ["B"], isComplete: true });
});

test("what is kept has a limit, but for the lines that are shown", async () => {
  const lines = new Lines(async (line) => line, () => {}, assert.fail);
  const text = Array.from({ length: 600 }, (_, i) => `${i}`).join("\n");
  lines.set(text);
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.equal(lines.known.size, 600);
  lines.set("another");
  await settled();
  assert.ok(lines.known.size <= 600 && lines.known.has("another"));
});

test("after an error the text that came meanwhile is translated", async () => {
  const { lines, asked, errors, last, names } = slowLines();
  lines.set("a");
  lines.set("ab");
  asked[0].reject(new Error("no memory"));
  await settled();
  assert.deepEqual([errors, names()], [["no memory"], ["a", "ab"]]);
  asked[1].resolve();
  await settled();
  assert.deepEqual(last(), { answers: ["AB"], isComplete: true });
});

test("a line that fails is asked for once, and those behind it are translated", async () => {
  const { lines, asked, last, names } = slowLines();
  lines.set("a\nb\na");
  asked[0].reject(new Error("no memory"));
  await settled();
  asked[1].resolve();
  await settled();
  assert.deepEqual(names(), ["a", "b"]);
  assert.deepEqual(last(), { answers: [undefined, "B", undefined], isComplete: true });
});

test("an error of a model that was replaced is not the next one's", async () => {
  const { lines, asked, last } = slowLines();
  lines.set("a");
  lines.forget();
  lines.set("a");
  asked[0].reject(new Error("no memory"));
  await settled();
  asked[1].resolve();
  await settled();
  assert.deepEqual(last(), { answers: ["A"], isComplete: true });
});

test("twenty thousand lines take no time of their own", async () => {
  const time = (/** @type {number} */ count) =>
    new Promise((resolve) => {
      const start = performance.now();
      const onAnswer = (_, isComplete) => isComplete && resolve(performance.now() - start);
      const lines = new Lines(async (line) => line, onAnswer, assert.fail);
      lines.set(Array.from({ length: count }, (_, i) => `line ${i}`).join("\n"));
    });
  await time(1000);
  assert.ok((await time(20_000)) < 2000); // a tenth of a second
});
