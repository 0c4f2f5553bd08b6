// A log read in both directions. With filters the server looks for a moment and then says where to
// go on, so a page may take several questions; `searching` tells how far it is meanwhile.

const PAGE = 500;

/**
 * @template Mark
 * @typedef {{ from_line?: Mark | number | null, tail?: number, limit: number }} Params
 */

/**
 * @template Mark
 * @typedef {{ lines: Api.LineJson[], total?: number, next: Mark | null, previous: Mark | null }} Answer
 */

/** @template {string | number} Mark a place in the log: a number of a line, or a text that only the server reads */
export class LogSource {
  /**
   * @param {(params: Params<Mark>) => Promise<Answer<Mark>>} fetch
   * @param {(at: Mark | null) => unknown} onsearching
   */
  constructor(fetch, onsearching) {
    this.fetch = fetch;
    this.onsearching = onsearching;
    /** @type {Mark | null} */
    this.previous = null;
    /** @type {Mark | null} */
    this.next = null;
    this.total = 0;
    this.last = 0;
    this.busy = false;
  }

  /**
   * The end of the log, or what stands around a line.
   * @param {number | null} [line]
   */
  async open(line = null) {
    this.busy = true;
    try {
      const lines = await (line === null
        ? this.#seek("previous", { tail: 1 })
        : this.#seek("next", { from_line: Math.max(1, line - 100) }));
      if (line === null) this.next = null; // beyond the end there is nothing yet
      this.last = line === null ? this.total : (lines.at(-1)?.line ?? 0);
      return lines;
    } finally {
      this.busy = false;
    }
  }

  older() {
    return this.#more("previous");
  }

  newer() {
    return this.#more("next");
  }

  /** @param {"next" | "previous"} end */
  async #more(end) {
    if (this.busy || this[end] === null) return [];
    this.busy = true;
    try {
      const lines = await this.#seek(
        end,
        end === "next" ? { from_line: this.next } : { from_line: this.previous, tail: 1 },
        true,
      );
      if (end === "next") this.last = lines.at(-1)?.line ?? this.last;
      return lines;
    } finally {
      this.busy = false;
    }
  }

  /**
   * Asks on in one direction until something is found or the end is reached.
   * @param {"next" | "previous"} end
   * @param {Omit<Params<Mark>, "limit">} start
   * @param {boolean} [isMore]
   */
  async #seek(end, start, isMore = false) {
    let params = start;
    for (;;) {
      const answer = await this.fetch({ ...params, limit: PAGE });
      this.total = answer.total ?? 0;
      this[end] = answer[end];
      if (!isMore) this[end === "next" ? "previous" : "next"] = answer[end === "next" ? "previous" : "next"];
      if (answer.lines.length || answer[end] === null) {
        this.onsearching(null);
        return answer.lines;
      }
      this.onsearching(answer[end]);
      params = { ...params, from_line: answer[end] };
    }
  }
}
