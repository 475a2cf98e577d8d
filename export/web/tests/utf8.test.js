import assert from "node:assert/strict";
import { test } from "node:test";

import { isBlank, stripped, toBytes, toText, toTextStrictly } from "../src/utf8.js";

test("a lone surrogate is three bytes, which are read as three U+FFFD", () => {
  assert.deepEqual([...toBytes("a\ud800")], [0x61, 0xed, 0xa0, 0x80]);
  assert.deepEqual(toBytes("\u{1f600}"), new TextEncoder().encode("\u{1f600}"));
  assert.equal(toText(toBytes("a\ud800b")), "a\ufffd\ufffd\ufffdb");
});

test("a byte order mark is a character", () => {
  assert.equal(toText(toBytes("\ufeffa")), "\ufeffa");
  assert.equal(toTextStrictly(toBytes("\ufeffa")), "\ufeffa");
});

test("ASCII white space is stripped, and no other", () => {
  const bytes = toBytes(" \t\n\v\f\r\u00a0a\u2003 ");
  assert.equal(toText(stripped(bytes)), "\u00a0a\u2003");
  assert.equal(stripped(toBytes(" \n ")).length, 0);
});

test("white space is what Python strips", () => {
  for (const text of ["", " ", "\x1c\x1f\x85", "\u00a0\u3000\u2028"]) assert.ok(isBlank(text));
  for (const text of ["a", "\ufeff", "\u200b", "\u180e", "\0"]) assert.ok(!isBlank(text));
});
