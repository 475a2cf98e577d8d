/**
 * The file's graph, which LiteRT.js runs: it maps a source to hypotheses.
 *
 * Shapes: `S` source tokens, `N` hypotheses, `T` target tokens, ends counted.
 */

import { loadAndCompile, loadLiteRt, Tensor } from "@litertjs/core";

const OUTPUTS = ["ids", "lengths", "scores", "weights", "token_log_probs"];
const MOST_NOTES = 20;
const ERROR = "ERROR:";

/** @type {string[]} What LiteRT's program has printed, the last lines. */
const notes = [];

/**
 * @typedef {object} Found
 * @property {Int32Array} ids `[N, T]`
 * @property {Int32Array} lengths `[N]`
 * @property {Float32Array} scores `[N]`
 * @property {Float32Array} weights `[N, T, S]`
 * @property {Float32Array} token_log_probs `[N, T]`
 */

/**
 * Loads LiteRT, once in a worker's life.
 *
 * @param {boolean} threads Whether it may use several cores.
 * @returns {Promise<unknown>}
 */
export function loadRuntime(threads) {
  const folder = new URL(`litert-${LITERT_VERSION}/`, self.location.href).href;
  const print = (/** @type {string} */ line) => {
    notes.push(line);
    notes.splice(0, notes.length - MOST_NOTES);
  };
  // LiteRT would look for its files beside this worker.
  const Module = {
    locateFile: (/** @type {string} */ name) => folder + name,
    mainScriptUrlOrBlob: `${folder}litert_wasm_threaded_internal.js`,
    print,
    printErr: print,
  };
  Object.assign(self, { Module });
  // It would wake a graphics card, which cannot run the search.
  const gpu = { requestAdapter: async () => null };
  Object.defineProperty(navigator, "gpu", { value: gpu });
  return loadLiteRt(folder, { threads });
}

/** Runs one `.tflite` file of a known source length. */
export class Graph {
  /**
   * @param {Uint8Array} bytes The file.
   * @param {string} name What it is called in messages.
   * @param {number} length `S`, that its metadata give.
   * @param {number} threads The cores that it may use.
   * @returns {Promise<Graph>}
   * @throws {Error} If LiteRT refuses it, with LiteRT's reason.
   */
  static async load(bytes, name, length, threads) {
    notes.length = 0;
    try {
      const cpuOptions = { numThreads: threads };
      const model = await loadAndCompile(bytes, { accelerator: "wasm", cpuOptions });
      return Graph.of(model, length);
    } catch (error) {
      throw new Error(
        `LiteRT.js ${LITERT_VERSION} cannot run the graph of “${name}”: ${reason(error)}`,
      );
    }
  }

  /**
   * @param {import("@litertjs/core").CompiledModel} model Freed if it is no translator.
   * @param {number} length
   * @returns {Graph}
   */
  static of(model, length) {
    try {
      return new Graph(model, length);
    } catch (error) {
      model.delete();
      throw error;
    }
  }

  /**
   * @param {import("@litertjs/core").CompiledModel} model
   * @param {number} length
   */
  constructor(model, length) {
    const inputs = model.getInputDetails();
    const outputs = model.getOutputDetails().map(({ name }) => name);
    if (inputs.length !== 1 || inputs[0].name !== "source" || !includesAll(outputs)) {
      throw new Error(`it maps ${inputs.map((x) => x.name)} to ${outputs}.`);
    }
    if (inputs[0].shape[1] !== length) {
      throw new Error(`it takes ${inputs[0].shape[1]} tokens, and says ${length}.`);
    }
    this.model = model;
    this.length = length;
  }

  /**
   * Searches.
   *
   * @param {Int32Array} source `[S]`
   * @returns {Promise<Found>}
   */
  async run(source) {
    const tensor = new Tensor(source, [1, this.length]);
    /** @type {Record<string, Tensor>} */
    let found = {};
    try {
      found = await this.model.run({ source: tensor });
      const copies = OUTPUTS.map(async (name) => [name, await found[name].data()]);
      return Object.fromEntries(await Promise.all(copies));
    } catch (error) {
      throw new Error(`LiteRT.js ${LITERT_VERSION} failed: ${reason(error)}`);
    } finally {
      // Nothing else frees them.
      for (const each of [tensor, ...Object.values(found)]) each.delete();
    }
  }

  /** Frees its memory. */
  delete() {
    this.model.delete();
  }
}

/** @param {string[]} outputs */
function includesAll(outputs) {
  return OUTPUTS.every((name) => outputs.includes(name));
}

/**
 * @param {any} error
 * @returns {string} Why LiteRT failed: it prints the reason, and throws another.
 */
function reason(error) {
  const printed = notes.filter((line) => line.startsWith(ERROR));
  const said = printed.map((line) => line.slice(ERROR.length)).join("");
  return said.trim() || (error instanceof Error ? error.message : String(error));
}
