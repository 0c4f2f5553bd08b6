// What a search found: one view of six at a time.

import { hold } from "../../dom.js";
import { Page } from "../../page.js";
import { setQuery } from "../../router.js";
import { choice, skeleton } from "../../widgets/parts.js";

const VIEWS = {
  parallel: ["Parallel coordinates", () => import("../search/parallel.js")],
  scatter: ["Scatter", () => import("../search/scatter.js")],
  contour: ["Contour", () => import("../search/contour.js")],
  heat: ["Heat map", () => import("../search/heat.js")],
  importance: ["Importance", () => import("../search/importance.js")],
  rungs: ["Rungs", () => import("../search/rungs.js")],
};

class Search extends Page {
  constructor(place, owner) {
    super(place);
    this.owner = owner;
  }

  get name() {
    return VIEWS[this.query.view] ? this.query.view : "parallel";
  }

  close() {
    super.close();
    this.current?.close();
  }

  async load() {
    const { name } = this;
    if (this.shown === name) {
      this.current?.moved(this.place);
      return;
    }
    this.current?.close();
    Object.assign(this, { shown: name, current: null });
    const { open } = await VIEWS[name][1]();
    if (this.shown !== name || this.signal.aborted) return;
    this.current = open(this.place, this.owner);
    this.draw();
  }

  draw() {
    super.draw();
    this.current?.draw();
  }

  view() {
    return [
      choice(
        "View of the search",
        Object.entries(VIEWS).map(([value, [text]]) => ({ value, text })),
        this.name,
        (view) => setQuery({ view: view === "parallel" ? "" : view }),
      ),
      this.current ? hold(this.current.node) : skeleton(8),
    ];
  }
}

export const open = (place, owner) => new Search(place, owner).begin();
