// The logs of all trials, in the order of time.

import { get, path } from "../../api.js";
import { h, hold } from "../../dom.js";
import { Page } from "../../page.js";
import { filterParams, logFilters } from "../../widgets/log_filters.js";
import { LogSource } from "../../widgets/log_source.js";
import { LogView, marker } from "../../widgets/log_view.js";
import { empty, problem } from "../../widgets/parts.js";

class ExperimentLogs extends Page {
  constructor(place, owner) {
    super(place);
    this.owner = owner;
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
    const request = (this.request = new AbortController());
    const url = path("experiments", this.owner.id, "logs");
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
      this.lines.set(lines, { search: marker(this.query.search, this.query.regex === "1") });
    });
  }

  #older() {
    const { source } = this;
    if (!source || source.busy) return;
    this.ask(async () => this.lines.prepend(await source.older()));
  }

  // Lines of many trials come in between each other: while the end is in sight it is asked for anew.
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
          logFilters(this.query),
          h("span.count", { role: "status" }, this.searching ? "Searching …" : ""),
        ),
        this.source && !this.searching && !this.lines.lines.length
          ? empty(this.query.search || this.query.level ? "No matching lines." : "No log yet.")
          : hold(this.lines.node),
      ),
    ];
  }

  keys() {
    return [{ key: "/", what: "Search", run: () => this.node.querySelector(".search")?.focus() }];
  }
}

export const open = (place, owner) => new ExperimentLogs(place, owner).begin();
