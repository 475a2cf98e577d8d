/** Texts of several lines: each line is a sentence. */

const MOST_KEPT = 500;

/**
 * Translates the lines of a text that changes. Of texts that come while one is translated
 * the latest alone is translated next; lines that were translated before are not again.
 */
export class Lines {
  /**
   * @param {(line: string) => Promise<any>} translate
   * @param {(answers: any[], isComplete: boolean) => void} onAnswer Called with an answer
   *   for each line, as far as there are any.
   * @param {(error: Error) => void} onError
   */
  constructor(translate, onAnswer, onError) {
    this.translate = translate;
    this.onAnswer = onAnswer;
    this.onError = onError;
    /** @type {Map<string, any>} */
    this.known = new Map();
    /** @type {string[]} */
    this.wanted = [];
    this.isBusy = false;
  }

  /** @param {string} text What is to be translated now. */
  set(text) {
    this.wanted = text.split("\n");
    this.next();
  }

  /** Forgets all answers, as they are another model's. */
  forget() {
    this.known = new Map(); // an answer that is on its way finds another
  }

  /** Asks for the first line that has no answer, unless a line is on its way. */
  next() {
    const missing = this.wanted.find((line) => !this.known.has(line));
    this.onAnswer(
      this.wanted.map((line) => this.known.get(line)),
      missing === undefined,
    );
    if (missing !== undefined && !this.isBusy) this.ask(missing);
  }

  /** @param {string} line */
  async ask(line) {
    this.isBusy = true;
    const { known } = this;
    try {
      const answer = await this.translate(line);
      if (known === this.known) this.keep(line, answer);
      this.isBusy = false;
      this.next();
    } catch (error) {
      this.isBusy = false;
      this.onError(/** @type {Error} */ (error));
    }
  }

  /**
   * @param {string} line
   * @param {any} answer
   */
  keep(line, answer) {
    this.known.set(line, answer);
    if (this.known.size <= MOST_KEPT) return;
    const oldest = [...this.known.keys()].find((x) => !this.wanted.includes(x));
    if (oldest !== undefined) this.known.delete(oldest);
  }
}
