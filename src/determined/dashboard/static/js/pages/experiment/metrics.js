// Every metric of an experiment, each in its chart, with the curves of the best trials.

import { get, path } from "../../api.js";
import { curveControls, curveOptions, everyBatch } from "../../chart/controls.js";
import { look } from "../../chart/palette.js";
import { seriesKey } from "../../chart/series.js";
import { swatch } from "../../chart/swatch.js";
import { focusOn, h, hold } from "../../dom.js";
import { count, isCounter, metricTitle, searchedFirst } from "../../format.js";
import { want } from "../../live.js";
import { Page } from "../../page.js";
import { go, setQuery } from "../../router.js";
import { ChartGrid } from "../../widgets/chart_grid.js";
import { empty, problem, select, skeleton } from "../../widgets/parts.js";
import { bestTrials } from "./curves.js";

/**
 * @import { ExperimentPage } from "../experiment.js"
 * @import { Place } from "../../router.js"
 * @import { Change, Points } from "../../live.js"
 */

const TOP = ["5", "10", "20", "50"];
const MOST_LIVE = 100; // curves that grow while one looks

class Metrics extends Page {
  /**
   * @param {Place} place
   * @param {ExperimentPage} owner
   */
  constructor(place, owner) {
    super(place);
    this.owner = owner;
    /** @type {Api.PointsJson | null} */
    this.trials = null;
    this.grid = new ChartGrid({ onpick: ({ href }) => href && go(href) });
  }

  close() {
    super.close();
    this.grid.close();
    want({});
  }

  load() {
    return this.ask(async () => {
      this.trials = await get(path("experiments", this.owner.id, "points"), {}, this.signal);
    });
  }

  /** @param {Place} place */
  moved(place) {
    this.place = place;
    this.draw();
  }

  /** @param {Change} change */
  changed({ trials }) {
    const known = new Set(this.trials?.ids);
    if (trials?.some((id) => !known.has(id))) this.soon(() => this.load(), 2000);
  }

  /** @param {Points} points */
  points(points) {
    this.grid.grow(points);
  }

  view() {
    if (this.error) return problem(this.error, () => this.load());
    if (!this.trials) return skeleton(10);
    const { metrics: all, searcher } = this.owner.experiment;
    const measured = searchedFirst(
      all.filter((one) => !isCounter(one)),
      [searcher.metric],
    );
    if (!measured.length) return empty("No metrics yet.", "Curves appear with the first report of a trial.");
    const wanted = (this.query.find ?? "").toLowerCase();
    const found = measured.filter((one) => metricTitle(one).toLowerCase().includes(wanted));
    const { ids } = this.trials;
    const shown = bestTrials(this.trials, Number(this.query.top ?? 10), searcher.smaller_is_better);
    this.#charts(
      found,
      shown.map((at) => ids[at]),
    );
    return [
      h(
        "div.bar",
        h("input.field.search", {
          type: "search",
          placeholder: "Find a metric",
          "aria-label": "Find a metric",
          value: this.query.find ?? "",
          oninput: (event) => setQuery({ find: event.currentTarget.value }, { replace: true }),
        }),
        curveControls(this.query, all, { batches: measured.some((one) => one.batches) }),
        select(
          "Trials",
          TOP.map((n) => ({ value: n, text: `best ${n}` })),
          this.query.top ?? "10",
          (top) => setQuery({ top }),
        ),
        h("span.muted", `${count(found.length, "metric")}, ${count(shown.length, "trial")} of ${ids.length}`),
      ),
      this.#legend(shown.map((at) => ids[at])),
      found.length ? hold(this.grid.node) : empty("No metric has that name."),
    ];
  }

  /** @param {number[]} ids */
  #legend(ids) {
    return h(
      "ul.legend-row",
      { "aria-label": "Trials" },
      ids.map((id, at) =>
        h("li", { key: String(id) }, swatch(look(at, ids.length)), h("a", { href: `/trials/${id}` }, id)),
      ),
    );
  }

  /**
   * @param {Api.MetricName[]} metrics
   * @param {number[]} ids
   */
  #charts(metrics, ids) {
    /** @type {(id: number, metric: Api.MetricName) => string} */
    const key = (id, metric) => seriesKey(id, metric, metric.batches && everyBatch(this.query));
    this.grid.set(
      metrics.map((metric) => ({
        name: metricTitle(metric),
        lines: ids.map((id, at) => ({
          key: key(id, metric),
          name: `Trial ${id}`,
          href: `/trials/${id}`,
          at,
        })),
      })),
      curveOptions(this.query),
    );
    want({ series: metrics.flatMap((metric) => ids.map((id) => key(id, metric))).slice(0, MOST_LIVE) });
  }

  keys() {
    return [{ key: "/", what: "Search", run: () => focusOn(this.node, ".search") }];
  }
}

/**
 * @param {Place} place
 * @param {ExperimentPage} owner
 */
export const open = (place, owner) => new Metrics(place, owner).begin();
