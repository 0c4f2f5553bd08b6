// The logs of all trials, in the order of time.

import { get, path } from "../../api.js";
import { focusOn, h, hold } from "../../dom.js";
import { Page } from "../../page.js";
import { filterParams, logFilters } from "../../widgets/log_filters.js";
import { LogSource } from "../../widgets/log_source.js";
import { LogView, marker } from "../../widgets/log_view.js";
import { empty, problem } from "../../widgets/parts.js";

/**
 * @import { ExperimentPage } from "../experiment.js"
 * @import { Place } from "../../router.js"
 * @import { Change } from "../../live.js"
 */

class ExperimentLogs extends Page {
  /**
   * @param {Place} place
   * @param {ExperimentPage} owner
   */
  constructor(place, owner) {
    super(place);
    this.owner = owner;
    /** @type {LogSource<string> | null} */
    this.source = null;
    /** @type {AbortController | null} */
    this.request = null;
    this.searching = false;
    this.lines = new LogView({
      many: true,
      older: () => this.#older(),
      href: (one) => `/trials/${one.trial_id}/logs?line=${one.line}`,
    });
  }

  close() {
    super.close();
    this.request?.abort();
  }

  load() {
    this.request?.abort();
    const request = new AbortController();
    this.request = request;
    const url = path("experiments", this.owner.id, "logs");
    /** @type {LogSource<string>} */
    const source = new LogSource(
      ({ from_line: after, tail, limit }) =>
        get(url, { ...filterParams(this.query), after, tail, limit }, request.signal),
      (place) => {
        this.searching = place !== null;
        this.draw();
      },
    );
    return this.ask(async () => {
      const lines = await source.open();
      this.source = source;
      this.lines.set(lines, { search: marker(this.query.search, false) });
    });
  }

  #older() {
    const { source } = this;
    if (!source || source.busy) return;
    this.ask(async () => this.lines.prepend(await source.older()));
  }

  /**
   * Lines of many trials come in between each other: while the end is in sight it is asked for anew.
   * @param {Change} change
   */
  changed({ experiments }) {
    if (experiments?.includes(this.owner.id) && this.lines.following) this.soon(() => this.load(), 2000);
  }

  view() {
    return [
      this.error ? problem(this.error, () => this.load()) : null,
      h(
        "section.card",
        { "aria-label": "Logs of all trials" },
        h(
          "div.bar.table-tools",
          logFilters(this.query, { hasRegex: false }),
          h("span.count", { role: "status" }, this.searching ? "Searching …" : ""),
        ),
        this.source && !this.searching && !this.lines.lines.length
          ? empty(this.query.search || this.query.level ? "No matching lines." : "No log yet.")
          : hold(this.lines.node),
      ),
    ];
  }

  keys() {
    return [{ key: "/", what: "Search", run: () => focusOn(this.node, ".search") }];
  }
}

/**
 * @param {Place} place
 * @param {ExperimentPage} owner
 */
export const open = (place, owner) => new ExperimentLogs(place, owner).begin();
