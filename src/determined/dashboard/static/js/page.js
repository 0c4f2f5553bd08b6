// What all pages share: questions that end with the page, drawing, live changes, keys.

import { isAbort } from "./api.js";
import { h, render, widget } from "./dom.js";
import { bind } from "./keys.js";
import { listen } from "./live.js";

/**
 * @import { Key } from "./keys.js"
 * @import { Change, Log, Points } from "./live.js"
 * @import { Place } from "./router.js"
 */

export class Page {
  /** @param {Place} place */
  constructor(place) {
    this.place = place;
    this.node = widget(h("div.page"));
    this.leaving = new AbortController();
    /** @type {Error | null} */
    this.error = null;
    /** @type {(() => unknown)[]} */
    this.cleanups = [];
    /** @type {(() => unknown) | null} */
    this.onceMore = null;
    this.waiting = false;
  }

  // Called once the fields of the page are set.
  begin() {
    this.cleanups.push(
      listen({
        change: (change) => this.changed(change),
        points: (points) => this.points(points),
        log: (log) => this.log(log),
        again: () => this.again(),
      }),
      bind(this.keys()),
    );
    this.draw();
    this.load();
    return this;
  }

  get query() {
    return this.place.query;
  }

  get signal() {
    return this.leaving.signal;
  }

  /**
   * Whether it can show that place as well.
   * @param {Place} _place
   * @returns {boolean}
   */
  accepts(_place) {
    return true;
  }

  /** @param {Place} place */
  moved(place) {
    this.place = place;
    this.draw();
    this.load();
  }

  close() {
    this.leaving.abort();
    for (const stop of this.cleanups) stop();
  }

  /**
   * Runs a question; a failure is kept and shown, an answer after leaving is dropped.
   * @param {() => unknown} work
   */
  async ask(work) {
    try {
      await work();
      this.error = null;
    } catch (error) {
      if (isAbort(error) || this.signal.aborted) return;
      this.error = /** @type {Error} */ (error);
    }
    if (!this.signal.aborted) this.draw();
  }

  /**
   * Many changes in a row ask once now and once at the end.
   * @param {() => unknown} work
   * @param {number} [wait] in milliseconds
   */
  soon(work, wait = 400) {
    if (this.waiting) {
      this.onceMore = work;
      return;
    }
    work();
    this.waiting = true;
    setTimeout(() => {
      this.waiting = false;
      const next = this.onceMore;
      this.onceMore = null;
      if (next && !this.signal.aborted) this.soon(next, wait);
    }, wait);
  }

  draw() {
    render(this.node, this.view());
    if (this.title) document.title = `${this.title} · determined`;
  }

  /**
   * Tabs have none: the page around them is named.
   * @returns {string}
   */
  get title() {
    return "";
  }

  /** @returns {Ui.Child} */
  view() {
    return null;
  }

  /** @returns {unknown} */
  load() {
    return null;
  }

  // The stream was lost and is back: what happened meanwhile is not in it.
  again() {
    this.load();
  }

  /** @param {Change} _change */
  changed(_change) {}

  /** @param {Points} _points */
  points(_points) {}

  /** @param {Log} _log */
  log(_log) {}

  /** @returns {Key[]} */
  keys() {
    return [];
  }
}
