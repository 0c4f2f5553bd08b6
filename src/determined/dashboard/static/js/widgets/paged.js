// Rows that come in pages when they come in sight.

const PAGE = 100;

/** @template Row */
export class Paged {
  /**
   * @param {(offset: number, limit: number) => Promise<{ total: number, rows: Row[] }>} fetch
   * @param {() => unknown} onchange when something came
   */
  constructor(fetch, onchange) {
    this.fetch = fetch;
    this.onchange = onchange;
    /** @type {(Row | undefined)[]} */
    this.rows = [];
    this.total = 0;
    /** @type {Set<number>} */
    this.asked = new Set();
    this.version = 0;
    this.known = false;
  }

  /** What is here already. */
  get loaded() {
    return this.rows.filter((row) => row !== undefined);
  }

  // The question has changed: the old rows stay in sight until the new ones are here.
  async reset() {
    this.version += 1;
    this.asked = new Set([0]);
    await this.#page(0, this.version, true);
  }

  /**
   * @param {number} first
   * @param {number} last
   */
  need(first, last) {
    for (let page = Math.floor(first / PAGE); page * PAGE < last; page += 1) {
      if (this.asked.has(page)) continue;
      this.asked.add(page);
      this.#page(page, this.version, false);
    }
  }

  /**
   * Asks again for what is in sight; far pages are forgotten and come again when scrolled to.
   * @param {number} first
   * @param {number} last
   */
  async refresh(first, last) {
    /** @type {Set<number>} */
    const pages = new Set();
    for (let page = Math.floor(first / PAGE); page * PAGE <= last; page += 1) pages.add(page);
    this.asked = pages;
    const version = this.version;
    await Promise.all([...pages].map((page) => this.#page(page, version, false, pages)));
  }

  /**
   * @param {number} page
   * @param {number} version
   * @param {boolean} fresh
   * @param {Set<number> | null} [only]
   */
  async #page(page, version, fresh, only = null) {
    const { total, rows } = await this.fetch(page * PAGE, PAGE);
    if (version !== this.version) return;
    if (fresh) this.rows = [];
    if (only) this.rows = this.rows.map((row, at) => (only.has(Math.floor(at / PAGE)) ? row : undefined));
    this.total = total;
    this.known = true;
    this.rows.length = Math.min(this.rows.length, total);
    rows.forEach((row, at) => {
      this.rows[page * PAGE + at] = row;
    });
    this.onchange();
  }
}
