// Learning curves of all trials of an experiment.

import { get, path } from "../../api.js";
import { curveControls, curveOptions, everyBatch, zoomInAddress } from "../../chart/controls.js";
import { CurveChart } from "../../chart/curves.js";
import { EVERYTHING, groupName, summary, usualGrouping } from "../../chart/groups.js";
import { seriesKey } from "../../chart/series.js";
import { h, hold } from "../../dom.js";
import { finite, measuredFirst, metricTitle, number } from "../../format.js";
import { want } from "../../live.js";
import { Page } from "../../page.js";
import { go, setQuery } from "../../router.js";
import { empty, problem, select } from "../../widgets/parts.js";

/**
 * @import { ExperimentPage } from "../experiment.js"
 * @import { Place } from "../../router.js"
 * @import { Change, Points } from "../../live.js"
 */

const TOP = ["5", "10", "20", "50", "100"];

class Curves extends Page {
  /**
   * @param {Place} place
   * @param {ExperimentPage} owner
   */
  constructor(place, owner) {
    super(place);
    this.owner = owner;
    /** @type {Api.PointsJson | null} */
    this.trials = null;
    this.chart = new CurveChart({
      title: "Curves",
      height: 480,
      onzoom: zoomInAddress,
      onpick: ({ href }) => href && go(href),
    });
  }

  close() {
    super.close();
    this.chart.close();
    want({});
  }

  get metrics() {
    return measuredFirst(this.owner.experiment.metrics);
  }

  get metric() {
    const { searcher } = this.owner.experiment;
    const wanted = this.query.metric ?? `validation.${searcher.metric}`;
    return this.metrics.find((one) => `${one.group}.${one.name}` === wanted) ?? this.metrics[0];
  }

  load() {
    return this.ask(async () => {
      this.trials = await get(path("experiments", this.owner.id, "points"), {}, this.signal);
      this.#chart(this.trials);
    });
  }

  /** What trials are grouped by: a hyperparameter, all of them, or nothing (the empty text). */
  get by() {
    const { by } = this.query;
    if (by === "trial" || !this.trials) return "";
    return by ?? usualGrouping(this.trials);
  }

  /** @param {Place} place */
  moved(place) {
    this.place = place;
    this.draw();
    if (this.trials) this.#chart(this.trials);
  }

  /** @param {Api.PointsJson} trials */
  #chart(trials) {
    const { metric } = this;
    if (!metric) return;
    const smaller = this.owner.experiment.searcher.smaller_is_better;
    const shown = bestTrials(trials, Number(this.query.top ?? 50), smaller);
    const { ids, hparams } = trials;
    const differing = Object.entries(hparams).filter(([, all]) => new Set(all).size > 1);
    const { by } = this;
    const names = [...new Set(shown.map((at) => groupName(hparams, by, at)))];
    const lines = shown.map((at, place) => ({
      key: seriesKey(ids[at], metric, metric.batches && everyBatch(this.query)),
      name: `Trial ${ids[at]}`,
      href: `/trials/${ids[at]}`,
      at: by ? names.indexOf(groupName(hparams, by, at)) : place,
      group: by ? groupName(hparams, by, at) : undefined,
      about: by ? {} : Object.fromEntries(differing.map(([name, all]) => [name, all[at]])),
    }));
    const band = by ? "Lines are means over trials, bands one standard deviation. " : "";
    const best =
      ids.length > shown.length
        ? `The ${shown.length} best of ${ids.length.toLocaleString("en-US")} trials.`
        : "";
    const note = band + best;
    this.chart.set({
      title: metricTitle(metric),
      lines,
      options: { ...curveOptions(this.query), smallerIsBetter: smaller, note },
    });
    want({ series: lines.map((one) => one.key) });
  }

  /** @param {Change} change */
  changed({ trials }) {
    const known = new Set(this.trials?.ids);
    if (trials?.some((id) => !known.has(id))) this.soon(() => this.load(), 2000);
  }

  /** @param {Points} points */
  points(points) {
    this.chart.grow(points);
  }

  #groupings() {
    if (!this.trials) return null;
    const names = Object.keys(this.trials.hparams);
    if (!names.length) return null;
    return select(
      "Group by",
      [
        { value: "trial", text: "nothing" },
        { value: EVERYTHING, text: "all hyperparameters" },
        ...names.map((name) => ({ value: name, text: name })),
      ],
      this.by || "trial",
      (by) => setQuery({ by }),
    );
  }

  /** The best values of each group: over seeds, one row for each configuration. */
  #table() {
    const { trials, by } = this;
    const { searcher } = this.owner.experiment;
    if (!trials || !by || !searcher.metric) return null;
    const rows = groupRows(trials, by, searcher.smaller_is_better);
    const table = h(
      "table.plain",
      { "aria-label": "Groups of trials" },
      h(
        "thead",
        h("tr", h("th", "Group"), h("th", "Trials"), h("th", `Mean best ${searcher.metric}`), h("th", "±")),
      ),
      h(
        "tbody",
        rows.map(({ name, ended, all, mean, spread }) =>
          h(
            "tr",
            { key: name },
            h("td", name),
            h("td.number", `${ended}/${all}`),
            h("td.number", number(mean)),
            h("td.number", number(spread)),
          ),
        ),
      ),
    );
    return h("section.card", table);
  }

  view() {
    if (this.error) return problem(this.error, () => this.load());
    if (!this.metrics.length)
      return empty("No metrics yet.", "Curves appear with the first report of a trial.");
    const { metric } = this;
    return [
      h(
        "div.bar",
        select(
          "Metric",
          this.metrics.map(({ group, name }) => ({
            value: `${group}.${name}`,
            text: metricTitle({ group, name }),
          })),
          `${metric.group}.${metric.name}`,
          (it) => setQuery({ metric: it }),
        ),
        curveControls(this.query, this.metrics, { many: true, batches: metric.batches }),
        select(
          "Trials",
          TOP.map((n) => ({ value: n, text: `best ${n}` })),
          this.query.top ?? "50",
          (top) => setQuery({ top }),
        ),
        this.#groupings(),
      ),
      hold(this.chart.node),
      this.#table(),
    ];
  }
}

/**
 * A row for each group, the best mean first; a trial without a finite value is counted, but has none.
 * @param {Pick<Api.PointsJson, "ids" | "values" | "hparams">} points
 * @param {string} by
 * @param {boolean} smallerIsBetter
 */
export function groupRows({ ids, values, hparams }, by, smallerIsBetter) {
  /** @type {Map<string, (number | null)[]>} */
  const groups = new Map();
  ids.forEach((_, at) => {
    const name = groupName(hparams, by, at);
    groups.set(name, [...(groups.get(name) ?? []), finite(values[at])]);
  });
  const rows = [...groups].map(([name, all]) => {
    const found = all.filter((it) => it !== null);
    return { name, all: all.length, ended: found.length, ...summary(found) };
  });
  const sign = smallerIsBetter ? 1 : -1;
  return rows.sort((a, b) => (a.mean === null ? 1 : b.mean === null ? -1 : sign * (a.mean - b.mean)));
}

/**
 * Places of the best trials; those without a value come last, in order of their ids.
 * @param {Pick<Api.PointsJson, "ids" | "values">} points
 * @param {number} most
 * @param {boolean} smallerIsBetter
 */
export function bestTrials({ ids, values }, most, smallerIsBetter) {
  /** @param {number} at */
  const worth = (at) => {
    const it = finite(values[at]);
    if (it === null) return Infinity;
    return smallerIsBetter ? it : -it;
  };
  return ids
    .map((_, at) => at)
    .sort((a, b) => worth(a) - worth(b) || ids[a] - ids[b])
    .slice(0, most);
}

/**
 * @param {Place} place
 * @param {ExperimentPage} owner
 */
export const open = (place, owner) => new Curves(place, owner).begin();
