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
    /** @type {Set<string>} Lines of this text that are not asked for again. */
    this.failed = new Set();
    /** @type {string[]} */
    this.wanted = [];
    /** @type {any[]} */
    this.answers = [];
    /** Every line before this one has been dealt with. */
    this.at = 0;
    this.isBusy = false;
  }

  /** @param {string} text What is to be translated now. */
  set(text) {
    this.wanted = text.split("\n");
    this.answers = this.wanted.map((line) => this.known.get(line));
    this.at = 0;
    this.failed.clear();
    this.prune();
    this.next();
  }

  /** Forgets all answers, as they are another model's. */
  forget() {
    this.known = new Map(); // an answer that is on its way finds another
  }

  /** Asks for the first line that has no answer, unless a line is on its way. */
  next() {
    while (this.at < this.wanted.length && this.isDone(this.wanted[this.at])) {
      this.answers[this.at] = this.known.get(this.wanted[this.at]);
      this.at++;
    }
    const isComplete = this.at === this.wanted.length;
    this.onAnswer(this.answers, isComplete);
    if (!isComplete && !this.isBusy) this.ask(this.wanted[this.at]);
  }

  /** @param {string} line */
  isDone(line) {
    return this.known.has(line) || this.failed.has(line);
  }

  /** @param {string} line */
  async ask(line) {
    this.isBusy = true;
    const { known } = this;
    try {
      const answer = await this.translate(line);
      if (known === this.known) known.set(line, answer);
    } catch (error) {
      if (known === this.known) this.failed.add(line);
      this.onError(/** @type {Error} */ (error));
    }
    this.isBusy = false;
    this.next();
  }

  /** Forgets the oldest lines, but for those of this text. */
  prune() {
    const wanted = new Set(this.wanted);
    for (const line of this.known.keys()) {
      if (this.known.size <= MOST_KEPT) return;
      if (!wanted.has(line)) this.known.delete(line);
    }
  }
}
