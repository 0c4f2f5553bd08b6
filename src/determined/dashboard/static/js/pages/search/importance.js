// Which hyperparameters mattered.

import { get, path } from "../../api.js";
import { h } from "../../dom.js";
import { count, percent } from "../../format.js";
import { Page } from "../../page.js";
import { card, csvButton, empty, problem, progressBar, skeleton } from "../../widgets/parts.js";

/**
 * @import { ExperimentPage } from "../experiment.js"
 * @import { Place } from "../../router.js"
 */

class Importance extends Page {
  /**
   * @param {Place} place
   * @param {ExperimentPage} owner
   */
  constructor(place, owner) {
    super(place);
    this.owner = owner;
    /** @type {Api.ImportanceJson | null} */
    this.found = null;
  }

  load() {
    return this.ask(async () => {
      this.found = await get(
        path("experiments", this.owner.id, "importance"),
        { metric: this.query.metric },
        this.signal,
      );
    });
  }

  view() {
    if (this.error) return problem(this.error, () => this.load());
    if (!this.found) return skeleton(8);
    const { values, trials, method, note } = this.found;
    const rows = Object.entries(values).sort((a, b) => Number(b[1]) - Number(a[1]));
    if (!rows.length)
      return empty(
        "No importance yet.",
        note || "It needs several completed trials whose hyperparameters differ.",
      );
    return card(
      "Importance of hyperparameters",
      [
        h("span.muted", `${method}, ${count(trials, "trial")}`),
        csvButton(`experiment-${this.owner.id}-importance`, () => [
          ["hyperparameter", "importance"],
          ...rows,
        ]),
      ],
      h(
        "div.inside.importance",
        rows.map(([name, share]) => [
          h("span.mono.cut", { title: name }, name),
          progressBar(share, "ACTIVE", `Importance of ${name}`),
          h("span.number", percent(share)),
        ]),
      ),
      note ? h("div.chart-foot", note) : null,
    );
  }
}

/**
 * @param {Place} place
 * @param {ExperimentPage} owner
 */
export const open = (place, owner) => new Importance(place, owner).begin();
