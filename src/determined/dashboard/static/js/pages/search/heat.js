// A pair of hyperparameters in cells: the best value found in each.

import { get, path } from "../../api.js";
import { Heat } from "../../chart/heat.js";
import { pictureButton } from "../../chart/picture.js";
import { h, hold } from "../../dom.js";
import { Page } from "../../page.js";
import { setQuery } from "../../router.js";
import { card, empty, problem, select, skeleton } from "../../widgets/parts.js";
import { axesOf, fetchPoints, pairOf, pairSelects } from "./points.js";

/**
 * @import { ExperimentPage } from "../experiment.js"
 * @import { Axis } from "../../chart/parallel.js"
 * @import { Place } from "../../router.js"
 */

class HeatMap extends Page {
  /**
   * @param {Place} place
   * @param {ExperimentPage} owner
   */
  constructor(place, owner) {
    super(place);
    this.owner = owner;
    /** @type {Axis[] | null} */
    this.axes = null;
    this.heat = new Heat({ label: "Best value by pairs of hyperparameters" });
  }

  close() {
    super.close();
    this.heat.close();
  }

  load() {
    return this.ask(async () => {
      this.axes ??= axesOf(await fetchPoints(this.owner.id, this.signal), this.owner.experiment.hparams);
      const pair = pairOf(this.axes, this.query);
      if (!pair) return;
      const [x, y] = pair;
      const grid = await get(
        path("experiments", this.owner.id, "contour"),
        { x: x.name, y: y.name, bins: this.bins },
        this.signal,
      );
      this.heat.set({
        grid,
        xTitle: x.title,
        yTitle: y.title,
        smallerIsBetter: this.owner.experiment.searcher.smaller_is_better,
      });
    });
  }

  // Few trials in many cells would be a starry sky.
  get bins() {
    return this.query.bins ?? (this.owner.experiment.trials < 100 ? "8" : "16");
  }

  view() {
    if (this.error) return problem(this.error, () => this.load());
    if (!this.axes) return skeleton(12);
    const pair = pairOf(this.axes, this.query);
    if (!pair)
      return empty(
        "Nothing to compare yet.",
        "A heat map needs two hyperparameters that differ between trials.",
      );
    return card(
      `Best ${this.owner.experiment.searcher.metric ?? "value"}`,
      [
        pairSelects(this.axes, ...pair),
        select(
          "Cells",
          ["8", "16", "32"].map((n) => ({ value: n, text: `${n} × ${n}` })),
          this.bins,
          (bins) => setQuery({ bins }),
        ),
        pictureButton("heat map", this.heat),
      ],
      hold(this.heat.node),
      h("div.chart-foot", "Each cell shows its best trial; grey cells have none."),
    );
  }
}

/**
 * @param {Place} place
 * @param {ExperimentPage} owner
 */
export const open = (place, owner) => new HeatMap(place, owner).begin();
