/**
 * A `.tflite` file as bytes: a graph, and behind it an archive that says what the graph
 * must be. What it says, archive.js reads.
 */

import { toText } from "./utf8.js";
import { crc32, readDirectory, unpacked } from "./zip.js";

/** @typedef {import("./zip.js").Archive} Archive */

const METADATA = "keras_luong.json";
const MOST_METADATA = 1 << 20;
const MOST_VOCABULARY = 16 << 20;

/**
 * @typedef {object} ModelFile
 * @property {Archive} archive
 * @property {any} metadata What the file says of itself.
 */

/**
 * @param {Uint8Array} bytes A whole file.
 * @returns {Promise<ModelFile>}
 * @throws {Error} If it is none, or its graph or what it says of itself is damaged.
 */
export async function readModelFile(bytes) {
  const archive = readDirectory(bytes);
  const metadata = JSON.parse(toText(await member(archive, METADATA, MOST_METADATA)));
  if (metadata?.format === undefined) throw new Error("it does not say format");
  const sum = metadata.graph_crc32;
  if (sum !== undefined && sum !== crc32(bytes.subarray(0, archive.start))) {
    throw new Error("its graph is not what was written");
  }
  return { archive, metadata };
}

/**
 * @param {Archive} archive
 * @param {string} name
 * @param {number} [most] The bytes that it may have.
 * @returns {Promise<Uint8Array>} A file of the archive.
 */
export async function member({ entries }, name, most = MOST_VOCABULARY) {
  const entry = entries.get(name);
  if (!entry) throw new Error(`it has no ${name}`);
  return unpacked(entry, most);
}

/**
 * @param {Uint8Array} bytes
 * @returns {Promise<boolean>} Whether they are all bytes of a model's file.
 */
export async function isWholeModel(bytes) {
  try {
    const { archive } = await readModelFile(bytes);
    for (const name of archive.entries.keys()) await member(archive, name);
    return true;
  } catch {
    return false;
  }
}
