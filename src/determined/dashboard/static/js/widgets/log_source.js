// A log read in both directions. With filters the server looks for a moment and then says where to
// go on, so a page may take several questions; `searching` tells how far it is meanwhile.

const PAGE = 500;

export class LogSource {
  // fetch(params) -> {lines, total, next, previous}
  constructor(fetch, onsearching) {
    Object.assign(this, { fetch, onsearching, previous: null, next: null, total: 0, last: 0, busy: false });
  }

  // The end of the log, or what stands around a line.
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

  // Asks on in one direction until something is found or the end is reached.
  async #seek(end, params, isMore = false) {
    for (;;) {
      const answer = await this.fetch({ ...params, limit: PAGE });
      this.total = answer.total;
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
