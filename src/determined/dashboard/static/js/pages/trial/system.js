// What the machine did: CPU, memory, disk, network, GPU, under the training curve.

import { get, path } from "../../api.js";
import { CurveChart } from "../../chart/curves.js";
import { look } from "../../chart/palette.js";
import { pictureButton } from "../../chart/picture.js";
import { Plot } from "../../chart/plot.js";
import { seriesKey } from "../../chart/series.js";
import { h, hold } from "../../dom.js";
import { clock, metricTitle, number } from "../../format.js";
import { Page } from "../../page.js";
import { card, empty, problem, skeleton } from "../../widgets/parts.js";

/**
 * @import { TrialPage } from "../trial.js"
 * @import { Place } from "../../router.js"
 * @import { Change } from "../../live.js"
 */

class System extends Page {
  /**
   * @param {Place} place
   * @param {TrialPage} owner
   */
  constructor(place, owner) {
    super(place);
    this.owner = owner;
    /** @type {Api.ChartJson[] | null} */
    this.charts = null;
    /** @type {CurveChart | null} */
    this.training = null;
    /** @type {Map<string, Plot>} */
    this.plots = new Map();
  }

  close() {
    super.close();
    this.training?.close();
    for (const plot of this.plots.values()) plot.close();
  }

  load() {
    this.#training();
    return this.ask(async () => {
      this.charts = (await get(path("trials", this.owner.id, "system"), { px: 600 }, this.signal)).charts;
    });
  }

  /** @param {Change} change */
  changed({ trials }) {
    if (trials?.includes(this.owner.id)) this.soon(() => this.load(), 5000);
  }

  #training() {
    const metric =
      this.owner.trial.metrics.find((one) => one.group === "training" && one.name === "loss") ??
      this.owner.trial.metrics[0];
    if (!metric) return;
    this.training ??= new CurveChart({ title: metricTitle(metric), height: 216, legend: false });
    this.training.set({
      lines: [{ key: seriesKey(this.owner.id, metric, metric.batches), name: metric.name }],
      options: { x: "wall" },
    });
  }

  view() {
    if (this.error) return problem(this.error, () => this.load());
    if (!this.charts) return skeleton(10);
    if (!this.charts.length)
      return empty(
        "No system metrics.",
        "Enable them in the configuration:",
        h("code", "profiling: {enabled: true}"),
      );
    return [
      this.training ? hold(this.training.node) : null,
      h(
        "div.chart-grid",
        this.charts.map((chart) => this.#chart(chart)),
      ),
    ];
  }

  /**
   * @param {string} title
   * @param {string} unit
   */
  #plot(title, unit) {
    const known = this.plots.get(title);
    if (known) return known;
    /** @type {Plot} */
    const plot = new Plot({
      label: title,
      height: 200,
      describe: (one, at) => [
        h("strong", one.name),
        h("div", `${clock(one.x[at])}: ${number(one.y[at])} ${unit}`),
      ],
    });
    plot.onzoom = (range) =>
      plot.set({ x: { ...plot.x, range: range?.x ?? null }, y: { ...plot.y, range: range?.y ?? null } });
    this.plots.set(title, plot);
    return plot;
  }

  /** @param {Api.ChartJson} chart */
  #chart({ title, unit, series }) {
    const plot = this.#plot(title, unit);
    plot.set({
      series: series.map((one, at) => ({
        key: one.name,
        name: one.name,
        x: Float64Array.from(one.x, Number),
        y: Float64Array.from(one.y, Number),
        ...look(at),
      })),
      x: { kind: "wall", title: "Wall time", range: plot.x.range },
      y: { kind: "linear", title: unit, range: plot.y.range },
    });
    return card(
      title,
      [h("span.muted", series.length === 1 ? "" : `${series.length} series`), pictureButton(title, plot)],
      hold(plot.node),
    );
  }
}

/**
 * @param {Place} place
 * @param {TrialPage} owner
 */
export const open = (place, owner) => new System(place, owner).begin();
