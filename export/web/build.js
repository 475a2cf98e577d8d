/** Makes a folder that any file server serves: `node build.js [FOLDER]`, by default dist. */

import * as fs from "node:fs";
import path from "node:path";

import { build } from "esbuild";

import { HEADERS, META_POLICY } from "./headers.js";
import { crc32 } from "./src/zip.js";

const HERE = import.meta.dirname;
const OUT = path.resolve(process.argv[2] ?? path.join(HERE, "dist"));
const LITERT = path.join(HERE, "node_modules/@litertjs/core");
const { version } = JSON.parse(
  fs.readFileSync(path.join(LITERT, "package.json"), "utf-8"),
);
// Of LiteRT: usual, for browsers without relaxed SIMD, and with threads.
const KINDS = ["", "_compat", "_threaded"];

/**
 * @param {string} name A module of src/, which becomes a script of its own.
 * @param {Record<string, unknown>} [define] Names that it finds defined.
 */
function bundle(name, define = {}) {
  const known = { LITERT_VERSION: version, ...define };
  return build({
    entryPoints: [path.join(HERE, name)],
    outfile: path.join(OUT, path.basename(name)),
    bundle: true,
    minify: true,
    format: "iife",
    target: "es2022",
    charset: "utf8",
    define: Object.fromEntries(
      Object.entries(known).map(([key, value]) => [key, JSON.stringify(value)]),
    ),
    logLevel: "warning",
  });
}

function copyPage() {
  const filled = { "index.html": ["%POLICY%", META_POLICY], "THIRD_PARTY.txt": ["%LITERT%", version] };
  for (const [name, [place, text]] of Object.entries(filled)) {
    const content = fs.readFileSync(path.join(HERE, name), "utf-8");
    fs.writeFileSync(path.join(OUT, name), content.replaceAll(place, text));
  }
  fs.copyFileSync(path.join(HERE, "icon.svg"), path.join(OUT, "icon.svg"));
  fs.copyFileSync(path.join(HERE, "LICENSE"), path.join(OUT, "LICENSE.txt"));
}

function copyLiteRt() {
  const folder = path.join(OUT, `litert-${version}`);
  fs.mkdirSync(folder, { recursive: true });
  for (const kind of KINDS) {
    for (const end of ["js", "wasm"]) {
      const name = `litert_wasm${kind}_internal.${end}`;
      fs.copyFileSync(path.join(LITERT, "wasm", name), path.join(folder, name));
    }
  }
}

/** Headers in the form that Netlify and Cloudflare Pages read. */
function writeHeaders() {
  const lines = Object.entries(HEADERS).map(([name, value]) => `  ${name}: ${value}\n`);
  fs.writeFileSync(path.join(OUT, "_headers"), `/*\n${lines.join("")}`);
}

/** @param {string[]} names @returns {Record<string, number>} What each must be. */
function sums(names) {
  const sum = (/** @type {string} */ name) => crc32(fs.readFileSync(path.join(OUT, name)));
  return Object.fromEntries(names.map((name) => [name, sum(name)]));
}

fs.rmSync(OUT, { recursive: true, force: true });
fs.mkdirSync(OUT, { recursive: true });
await Promise.all(["src/page.js", "src/worker.js", "style.css"].map((x) => bundle(x)));
copyPage();
copyLiteRt();
writeHeaders();
const litert = fs.readdirSync(path.join(OUT, `litert-${version}`));
const { "index.html": page, ...others } = sums([
  ...["index.html", "style.css", "page.js", "worker.js", "icon.svg"],
  ...litert.map((name) => `litert-${version}/${name}`),
]);
// Browsers install a service worker anew if a byte of it has changed.
await bundle("src/service_worker.js", {
  PAGE_SUMS: { "": page, "index.html": page, ...others },
  PAGE_HEADERS: HEADERS,
});
