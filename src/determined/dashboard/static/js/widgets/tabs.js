// The tabs of a page: each is a page of its own, loaded when it is first shown.

import { h } from "../dom.js";
import { Page } from "../page.js";

/**
 * @import { Place } from "../router.js"
 *
 * @typedef {Record<string, readonly [string, () => Promise<{ open(place: Place, owner: any): Page }>]>} TabList
 *   title and module; each tab knows the page that it belongs to
 */

/**
 * @param {TabList} tabs
 * @param {string | null} chosen
 * @param {(name: string) => string} href
 */
export function tabBar(tabs, chosen, href) {
  return h(
    "nav.tabs",
    { "aria-label": "Tabs" },
    Object.entries(tabs).map(([name, [text]]) =>
      h("a", { key: name, href: href(name), "aria-current": name === chosen ? "page" : null }, text),
    ),
  );
}

export class Tabs {
  /**
   * @param {TabList} tabs
   * @param {Page} owner
   */
  constructor(tabs, owner) {
    this.tabs = tabs;
    this.owner = owner;
    /** @type {string | null} */
    this.name = null;
    /** @type {Page | null} */
    this.current = null;
  }

  /** @param {Place} place */
  #nameOf(place) {
    const { tab } = place.params;
    return Object.hasOwn(this.tabs, tab) ? tab : Object.keys(this.tabs)[0];
  }

  /**
   * Fetches the code of a tab while the page still asks for its data.
   * @param {Place} place
   */
  preload(place) {
    this.tabs[this.#nameOf(place)][1]();
  }

  /** @param {Place} place */
  async show(place) {
    const name = this.#nameOf(place);
    if (name === this.name) {
      this.current?.moved(place);
      return;
    }
    this.current?.close();
    this.name = name;
    this.current = null;
    const { open } = await this.tabs[name][1]();
    if (this.name !== name || this.owner.signal.aborted) return;
    this.current = open(this.owner.place, this.owner);
    this.owner.draw();
  }

  close() {
    this.current?.close();
  }
}

// A page about one thing with an id: `fetch` asks for it and `subject` is it, once it is there.
export class TabbedPage extends Page {
  /**
   * @param {Place} place
   * @param {TabList} tabs
   */
  constructor(place, tabs) {
    super(place);
    this.tabs = new Tabs(tabs, this);
  }

  /**
   * What it is about, once it is there.
   * @returns {object | null}
   */
  get subject() {
    return null;
  }

  /** @returns {Promise<unknown>} */
  async fetch() {
    return null;
  }

  get id() {
    return Number(this.place.params.id);
  }

  /** @param {Place} place */
  accepts(place) {
    return place.params.id === this.place.params.id;
  }

  /** @param {Place} place */
  moved(place) {
    this.place = place;
    this.tabs.show(place);
    this.draw();
  }

  close() {
    super.close();
    this.tabs.close();
  }

  async load() {
    this.tabs.preload(this.place);
    await this.ask(() => this.fetch());
    if (this.subject && !this.signal.aborted) this.tabs.show(this.place);
  }

  refresh() {
    this.soon(async () => {
      await this.ask(() => this.fetch());
      this.tabs.current?.draw();
    });
  }
}
