/** The page's side of the worker. */

/** Asks a worker, and waits for its answers. */
export class Client {
  /** @param {Worker} worker */
  constructor(worker) {
    this.worker = worker;
    this.last = 0;
    /** Whether its program runs: it has said something. */
    this.isThere = false;
    /** @type {Error | undefined} Why it never will. */
    this.failure = undefined;
    /** @type {Map<number, {resolve: (x: any) => void, reject: (x: Error) => void,
     *   onProgress?: (loaded: number, total: number) => void}>} */
    this.waiting = new Map();
    worker.addEventListener("message", ({ data }) => this.receive(data));
    worker.addEventListener("error", (event) => this.fail(event));
  }

  /**
   * @param {import("./worker.js").Opening} opening
   * @param {(loaded: number, total: number) => void} onProgress
   * @returns {Promise<import("./about.js").Model>}
   */
  open(opening, onProgress) {
    return this.ask({ open: opening }, onProgress);
  }

  /**
   * @param {string} text One sentence.
   * @returns {Promise<import("./translator.js").Translation[]>}
   */
  translate(text) {
    return this.ask({ translate: text });
  }

  /**
   * @param {object} message
   * @param {(loaded: number, total: number) => void} [onProgress]
   * @returns {Promise<any>}
   */
  ask(message, onProgress) {
    if (this.failure) return Promise.reject(this.failure);
    const id = ++this.last;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject, onProgress });
      this.worker.postMessage({ id, ...message });
    });
  }

  /** @param {{id: number, progress?: [number, number], error?: string, answer?: any}} said */
  receive({ id, progress, error, answer }) {
    this.isThere = true;
    const asked = this.waiting.get(id);
    if (!asked) return;
    if (progress) {
      asked.onProgress?.(...progress);
      return;
    }
    this.waiting.delete(id);
    if (error !== undefined) asked.reject(new Error(error));
    else asked.resolve(answer);
  }

  /**
   * The worker itself has failed, as where its program cannot be loaded.
   *
   * @param {ErrorEvent} event
   */
  fail(event) {
    const unstarted = "The translator (worker.js) cannot be loaded. Is the folder complete?";
    const failure = new Error(event.message || unstarted);
    if (!this.isThere) this.failure = failure;
    for (const { reject } of this.waiting.values()) reject(failure);
    this.waiting.clear();
  }
}
