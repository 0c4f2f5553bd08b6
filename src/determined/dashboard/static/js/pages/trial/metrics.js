// Every metric of a trial, each in its chart.

import { curveControls, curveOptions, everyBatch } from "../../chart/controls.js";
import { seriesKey } from "../../chart/series.js";
import { focusOn, h, hold } from "../../dom.js";
import { count, isCounter, measuredFirst, metricTitle } from "../../format.js";
import { want } from "../../live.js";
import { Page } from "../../page.js";
import { setQuery } from "../../router.js";
import { ChartGrid } from "../../widgets/chart_grid.js";
import { button, empty } from "../../widgets/parts.js";
import { showReplay } from "../../widgets/replay.js";

/**
 * @import { TrialPage } from "../trial.js"
 * @import { Place } from "../../router.js"
 * @import { Points } from "../../live.js"
 */

class Metrics extends Page {
  /**
   * @param {Place} place
   * @param {TrialPage} owner
   */
  constructor(place, owner) {
    super(place);
    this.owner = owner;
    this.grid = new ChartGrid({});
  }

  close() {
    super.close();
    this.grid.close();
    want({});
  }

  /** @param {Place} place */
  moved(place) {
    this.place = place;
    this.draw();
  }

  /** @param {Points} points */
  points(points) {
    this.grid.grow(points);
  }

  view() {
    const { id, trial } = this.owner;
    const all = measuredFirst(trial.metrics);
    const metrics =
      this.query.counters === "1" || this.query.find ? all : all.filter((one) => !isCounter(one));
    if (!all.length) return empty("No metrics yet.", "Curves appear with the first report.");
    const wanted = (this.query.find ?? "").toLowerCase();
    const found = metrics.filter(({ group, name }) => `${group} ${name}`.toLowerCase().includes(wanted));
    /** @param {Api.MetricJson} metric */
    const key = (metric) => seriesKey(id, metric, metric.batches && everyBatch(this.query));
    this.grid.set(
      found.map((metric) => ({
        name: metricTitle(metric),
        lines: [{ key: key(metric), name: metricTitle(metric), at: metric.group === "validation" ? 1 : 0 }],
      })),
      curveOptions(this.query),
    );
    want({ series: found.slice(0, 50).map(key) });
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
        curveControls(this.query, all, { batches: metrics.some((one) => one.batches) }),
        all.some(isCounter)
          ? button("Counters", () => setQuery({ counters: this.query.counters !== "1" }), {
              pressed: this.query.counters === "1",
              title: "Batches and epochs, as they were reported",
            })
          : null,
        trial.steps && !trial.experiment.unmanaged
          ? button("Replay this span", () => showReplay(trial, this.query), {
              title: "The command that trains the batches in view again",
            })
          : null,
        h(
          "span.muted",
          found.length === metrics.length
            ? count(metrics.length, "metric")
            : `${found.length} of ${count(metrics.length, "metric")}`,
        ),
      ),
      found.length ? hold(this.grid.node) : empty("No metric has that name."),
    ];
  }

  keys() {
    return [{ key: "/", what: "Search", run: () => focusOn(this.node, ".search") }];
  }
}

/**
 * @param {Place} place
 * @param {TrialPage} owner
 */
export const open = (place, owner) => new Metrics(place, owner).begin();
