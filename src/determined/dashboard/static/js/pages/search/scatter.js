// Each trial as a dot: any hyperparameter against the metric or another one.

import { ramp, token } from "../../chart/palette.js";
import { pictureButton } from "../../chart/picture.js";
import { Plot } from "../../chart/plot.js";
import { h, hold } from "../../dom.js";
import { count, real } from "../../format.js";
import { Page } from "../../page.js";
import { go, setQuery } from "../../router.js";
import { button, card, empty, problem, skeleton } from "../../widgets/parts.js";
import { axesOf, describeTrial, fetchPoints, goodness, pairSelects, placesOf } from "./points.js";

/**
 * @import { ExperimentPage } from "../experiment.js"
 * @import { Axis } from "../../chart/parallel.js"
 * @import { Side } from "../../chart/plot.js"
 * @import { TrialDots } from "./points.js"
 * @import { Place } from "../../router.js"
 */

class Scatter extends Page {
  /**
   * @param {Place} place
   * @param {ExperimentPage} owner
   */
  constructor(place, owner) {
    super(place);
    this.owner = owner;
    /** @type {Api.PointsJson | null} */
    this.all = null;
    /** @type {Plot<TrialDots>} */
    this.plot = new Plot({
      label: "Scatter of trials",
      height: 440,
      onpick: (series, at) => go(`/trials/${series.ids[at]}`),
      describe: (_, at) => this.all && describeTrial(this.all, at, owner.experiment),
      onzoom: (range) =>
        this.plot.set({
          x: { ...this.plot.x, range: range?.x ?? wholeRange(this.plot.x) },
          y: { ...this.plot.y, range: range?.y ?? wholeRange(this.plot.y) },
        }),
    });
  }

  close() {
    super.close();
    this.plot.close();
  }

  load() {
    return this.ask(async () => {
      this.all = this.all ?? (await fetchPoints(this.owner.id, this.signal));
    });
  }

  view() {
    if (this.error) return problem(this.error, () => this.load());
    if (!this.all) return skeleton(12);
    const { experiment } = this.owner;
    /** @type {Axis} */
    const metric = {
      name: "metric",
      title: experiment.searcher.metric ?? "best",
      kind: this.query.logmetric ? "log" : "linear",
      values: this.all.values.map(real),
    };
    const axes = [...axesOf(this.all, experiment.hparams), metric];
    if (axes.length < 2)
      return empty("Nothing to compare yet.", "This view shows trials whose hyperparameters differ.");
    const x = axes.find((one) => one.name === this.query.sx) ?? axes[0];
    const y = axes.find((one) => one.name === this.query.sy) ?? metric;
    this.#plot(this.all, x, y, experiment.searcher.smaller_is_better);
    const lost = this.all.values.filter((it) => !Number.isFinite(it)).length;
    return card(
      `${y.title} over ${x.title}`,
      [
        pairSelects(axes, x, y),
        button("Log metric", () => setQuery({ logmetric: !this.query.logmetric }), {
          pressed: Boolean(this.query.logmetric),
        }),
        pictureButton("scatter", this.plot),
      ],
      hold(this.plot.node),
      h(
        "div.chart-foot",
        `${count(this.all.ids.length, "trial")}. The stronger the color, the better.`,
        lost ? ` ${count(lost, "trial")} without a finite value ${lost === 1 ? "is" : "are"} not drawn.` : "",
      ),
    );
  }

  /**
   * @param {Api.PointsJson} all
   * @param {Axis} x
   * @param {Axis} y
   * @param {boolean} smaller
   */
  #plot(all, x, y, smaller) {
    const worth = goodness(all.values, smaller);
    /** @type {(axis: Axis) => Side} */
    const side = (axis) => ({
      kind: axis.kind === "category" ? "linear" : axis.kind,
      title: axis.title,
      range: axis.categories ? [-0.5, axis.categories.length - 0.5] : null,
      categories: axis.categories,
      isWhole: axis.isWhole,
    });
    this.plot.set({
      series: [
        {
          key: "trials",
          name: "trials",
          dots: true,
          ids: all.ids,
          x: placesOf(x),
          y: placesOf(y),
          color: token("accent"),
          colors: worth.map((it) => (it === null ? token("line-strong") : ramp(it))),
          radius: all.ids.length > 500 ? 3 : 5,
        },
      ],
      x: side(x),
      y: side(y),
    });
  }
}

/** @param {Side} side */
const wholeRange = ({ categories }) =>
  categories ? /** @type {[number, number]} */ ([-0.5, categories.length - 0.5]) : null;

/**
 * @param {Place} place
 * @param {ExperimentPage} owner
 */
export const open = (place, owner) => new Scatter(place, owner).begin();
