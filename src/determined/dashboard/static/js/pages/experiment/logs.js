// The logs of all trials, in the order of time.

import { get, path } from "../../api.js";
import { h, hold } from "../../dom.js";
import { Page } from "../../page.js";
import { filterParams, logFilters } from "../../widgets/log_filters.js";
import { LogView, marker } from "../../widgets/log_view.js";
import { empty, problem } from "../../widgets/parts.js";

class ExperimentLogs extends Page {
  constructor(place, owner) {
    super(place);
    this.owner = owner;
    this.next = null;
    this.lines = new LogView({ many: true, newer: () => this.#more(), href: (one) => `/trials/${one.trial_id}/logs?line=${one.line}` });
    this.lines.following = false;
  }

  #fetch(after) {
    return get(path("experiments", this.owner.id, "logs"), { ...filterParams(this.query), after, limit: 500 }, this.signal);
  }

  load() {
    return this.ask(async () => {
      const answer = await this.#fetch(null);
      this.next = answer.next;
      this.known = true;
      this.lines.set(answer.lines, { search: marker(this.query.search, this.query.regex === "1") });
    });
  }

  async #more() {
    if (!this.next || this.asking) return;
    this.asking = true;
    await this.ask(async () => {
      const answer = await this.#fetch(this.next);
      this.next = answer.next;
      this.lines.append(answer.lines);
    });
    this.asking = false;
  }

  view() {
    return [
      this.error ? problem(this.error, () => this.load()) : null,
      h("section.card", { "aria-label": "Logs of all trials" }, h("div.bar.table-tools", {}, logFilters(this.query)),
        this.known && !this.lines.lines.length ? empty(this.query.search || this.query.level ? "No line fits." : "No log yet.") : hold(this.lines.node)),
    ];
  }

  keys() {
    return [{ key: "/", what: "Search", run: () => this.node.querySelector(".search")?.focus() }];
  }
}

export const open = (place, owner) => new ExperimentLogs(place, owner).begin();
