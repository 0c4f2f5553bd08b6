// What all pages share: questions that end with the page, drawing, live changes, keys.

import { h, render, widget } from "./dom.js";
import { bind } from "./keys.js";
import { listen } from "./live.js";

export class Page {
  constructor(place) {
    this.place = place;
    this.node = widget(h("div.page"));
    this.leaving = new AbortController();
    this.error = null;
    this.cleanups = [];
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

  accepts() {
    return true;
  }

  moved(place) {
    this.place = place;
    this.draw();
    this.load();
  }

  close() {
    this.leaving.abort();
    for (const stop of this.cleanups) stop();
  }

  // Runs a question; a failure is kept and shown, an answer after leaving is dropped.
  async ask(work) {
    try {
      await work();
      this.error = null;
    } catch (error) {
      if (error.name === "AbortError" || this.signal.aborted) return;
      this.error = error;
    }
    if (!this.signal.aborted) this.draw();
  }

  // Many changes in a row ask once now and once at the end.
  soon(work, wait = 400) {
    if (this.waiting) {
      this.onceMore = work;
      return;
    }
    work();
    this.waiting = setTimeout(() => {
      this.waiting = null;
      const next = this.onceMore;
      this.onceMore = null;
      if (next && !this.signal.aborted) this.soon(next, wait);
    }, wait);
  }

  draw() {
    render(this.node, this.view());
    if (this.title) document.title = `${this.title} · determined`;
  }

  // Tabs have none: the page around them is named.
  get title() {
    return "";
  }

  view() {
    return null;
  }

  load() {}

  // The stream was lost and is back: what happened meanwhile is not in it.
  again() {
    this.load();
  }

  changed() {}

  points() {}

  log() {}

  keys() {
    return [];
  }
}
