// What a search found: one view of six at a time.

import { hold } from "../../dom.js";
import { Page } from "../../page.js";
import { setQuery } from "../../router.js";
import { choice, skeleton } from "../../widgets/parts.js";

/**
 * @import { ExperimentPage } from "../experiment.js"
 * @import { TabList } from "../../widgets/tabs.js"
 * @import { Place } from "../../router.js"
 */

/** @type {TabList} */
const VIEWS = {
  parallel: ["Parallel coordinates", () => import("../search/parallel.js")],
  scatter: ["Scatter", () => import("../search/scatter.js")],
  contour: ["Contour", () => import("../search/contour.js")],
  heat: ["Heat map", () => import("../search/heat.js")],
  importance: ["Importance", () => import("../search/importance.js")],
  rungs: ["Rungs", () => import("../search/rungs.js")],
};

class Search extends Page {
  /**
   * @param {Place} place
   * @param {ExperimentPage} owner
   */
  constructor(place, owner) {
    super(place);
    this.owner = owner;
    /** @type {Page | null} */
    this.current = null;
    this.shown = "";
  }

  get name() {
    const { view = "parallel" } = this.query;
    return Object.hasOwn(VIEWS, view) ? view : "parallel";
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
    this.shown = name;
    this.current = null;
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

/**
 * @param {Place} place
 * @param {ExperimentPage} owner
 */
export const open = (place, owner) => new Search(place, owner).begin();
