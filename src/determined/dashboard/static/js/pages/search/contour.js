// Two hyperparameters and the landscape between the trials: contour lines over what was measured.

import { drawContour, makeContour } from "../../chart/contour.js";
import { ramp, token } from "../../chart/palette.js";
import { pictureButton } from "../../chart/picture.js";
import { Plot } from "../../chart/plot.js";
import { padded } from "../../chart/scale.js";
import { h, hold } from "../../dom.js";
import { count, number, real } from "../../format.js";
import { Page } from "../../page.js";
import { go, setQuery } from "../../router.js";
import { button, card, empty, problem, skeleton } from "../../widgets/parts.js";
import { axesOf, describeTrial, fetchPoints, goodness, pairOf, pairSelects, placesOf } from "./points.js";

/**
 * @import { ExperimentPage } from "../experiment.js"
 * @import { Zoom } from "../../chart/plot.js"
 * @import { Axis } from "../../chart/parallel.js"
 * @import { Range } from "../../chart/scale.js"
 * @import { TrialDots } from "./points.js"
 * @import { Place } from "../../router.js"
 */

const MOST_DOTS = 200; // more hide what lies under them

class Contour extends Page {
  /**
   * @param {Place} place
   * @param {ExperimentPage} owner
   */
  constructor(place, owner) {
    super(place);
    this.owner = owner;
    /** @type {Api.PointsJson | null} */
    this.all = null;
    /** @type {import("../../chart/contour.js").Contour | null} */
    this.made = null;
    this.plotted = "";
    /** @type {Plot<TrialDots>} */
    this.plot = new Plot({
      label: "Contour lines of trials",
      height: 440,
      margin: 84,
      ground: (ink, plot) => this.made && drawContour(ink, plot, this.made),
      onpick: (series, at) => go(`/trials/${series.ids[at]}`),
      describe: (_, at) => this.all && describeTrial(this.all, at, owner.experiment),
      onzoom: (range) => this.#zoom(range),
    });
  }

  close() {
    super.close();
    this.plot.close();
  }

  load() {
    return this.ask(async () => {
      this.all ??= await fetchPoints(this.owner.id, this.signal);
    });
  }

  /** @param {Zoom} range */
  #zoom(range) {
    const { x, y } = this.plot;
    this.plot.set({
      x: { ...x, range: range?.x ?? x.whole ?? null },
      y: { ...y, range: range?.y ?? y.whole ?? null },
    });
  }

  view() {
    if (this.error) return problem(this.error, () => this.load());
    if (!this.all) return skeleton(12);
    const axes = axesOf(this.all, this.owner.experiment.hparams);
    const pair = pairOf(axes, this.query);
    const known = this.all.values.filter(Number.isFinite).length;
    if (!pair || known < 3)
      return empty(
        "Nothing to draw yet.",
        "A contour plot needs three trials with a result and two hyperparameters that differ between trials.",
      );
    const [x, y] = pair;
    const { cut } = this.#plot(this.all, x, y, known);
    const metric = this.owner.experiment.searcher.metric ?? "value";
    return card(
      `${metric} over ${x.title} and ${y.title}`,
      [
        pairSelects(axes, x, y),
        button("Log metric", () => setQuery({ logmetric: !this.query.logmetric }), {
          pressed: Boolean(this.query.logmetric),
        }),
        pictureButton("contour", this.plot),
      ],
      hold(this.plot.node),
      h(
        "div.chart-foot",
        h(
          "span",
          `Dots are ${known > MOST_DOTS ? `the ${MOST_DOTS} best of ` : ""}${count(known, "trial")}. `,
          "Tints and lines are interpolated between the trials (means weighted by distance; the other hyperparameters differ too); far from any trial nothing is drawn.",
          x.categories || y.categories ? " Between categories nothing is interpolated." : "",
          cut === null ? "" : ` Values worse than ${number(cut, 3)} share the weakest tint.`,
        ),
      ),
    );
  }

  /**
   * @param {Api.PointsJson} all
   * @param {Axis} x
   * @param {Axis} y
   * @param {number} known
   */
  #plot(all, x, y, known) {
    const smallerIsBetter = this.owner.experiment.searcher.smaller_is_better;
    const kind = this.query.logmetric ? "log" : "linear";
    const key = `${x.name} ${y.name} ${kind} ${all.ids.length}`;
    if (this.made && key === this.plotted) return this.made;
    this.plotted = key;
    const values = all.values.map((it) => real(it) ?? NaN);
    /** @param {Axis} axis */
    const side = (axis) => {
      const kind = axis.kind === "log" ? /** @type {const} */ ("log") : /** @type {const} */ ("linear");
      const places = placesOf(axis).map((it, at) => (Number.isFinite(values[at]) ? it : NaN));
      const fine = places.filter((it) => Number.isFinite(it) && (kind !== "log" || it > 0));
      const strips = axis.categories?.length ?? 0;
      const [low, high] = strips ? [-0.5, strips - 0.5] : [Math.min(...fine), Math.max(...fine)];
      return { ...axis, kind, values: places, low, high, strips };
    };
    const [across, up] = [side(x), side(y)];
    const made = makeContour({ x: across, y: up, values, kind, smallerIsBetter });
    this.made = made;
    const worth = goodness(all.values, smallerIsBetter);
    const shown = worth.map((it) => it !== null && it * (known - 1) >= known - MOST_DOTS);
    /** @param {Float64Array} places */
    const dots = (places) => places.map((it, at) => (shown[at] ? it : NaN));
    /** @param {ReturnType<typeof side>} one */
    const frame = (one) => {
      /** @type {Range | null} */
      const all = one.strips ? [one.low, one.high] : padded(one.low, one.high, one.kind);
      const { kind, title, categories, isWhole } = one;
      return { kind, title, categories, range: all, whole: all, isWhole };
    };
    this.plot.set({
      series: [
        {
          key: "trials",
          name: "trials",
          dots: true,
          ids: all.ids,
          x: dots(across.values),
          y: dots(up.values),
          color: token("line-strong"),
          colors: worth.map((it) => (it === null ? token("line-strong") : ramp(it))),
          ring: token("text"),
          radius: 4,
        },
      ],
      x: frame(across),
      y: frame(up),
    });
    return made;
  }
}

/**
 * @param {Place} place
 * @param {ExperimentPage} owner
 */
export const open = (place, owner) => new Contour(place, owner).begin();
