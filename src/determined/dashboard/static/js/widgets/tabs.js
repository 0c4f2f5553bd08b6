// The tabs of a page: each is a page of its own, loaded when it is first shown.

import { h } from "../dom.js";
import { Page } from "../page.js";

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
  constructor(tabs, owner) {
    Object.assign(this, { tabs, owner, name: null, current: null });
  }

  #nameOf(place) {
    return this.tabs[place.params.tab] ? place.params.tab : Object.keys(this.tabs)[0];
  }

  // Fetches the code of a tab while the page still asks for its data.
  preload(place) {
    this.tabs[this.#nameOf(place)][1]();
  }

  async show(place) {
    const name = this.#nameOf(place);
    if (name === this.name) {
      this.current?.moved(place);
      return;
    }
    this.current?.close();
    Object.assign(this, { name, current: null });
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
  constructor(place, tabs) {
    super(place);
    this.tabs = new Tabs(tabs, this);
  }

  get id() {
    return Number(this.place.params.id);
  }

  accepts(place) {
    return place.params.id === this.place.params.id;
  }

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
