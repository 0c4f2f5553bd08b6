// A pair of hyperparameters in cells: the best value found in each.

import { get, path } from "../../api.js";
import { Heat } from "../../chart/heat.js";
import { h, hold } from "../../dom.js";
import { Page } from "../../page.js";
import { setQuery } from "../../router.js";
import { pictureButton } from "../../chart/picture.js";
import { card, empty, problem, select, skeleton } from "../../widgets/parts.js";
import { axesOf, fetchPoints, pairOf, pairSelects } from "./points.js";

class HeatMap extends Page {
  constructor(place, owner) {
    super(place);
    this.owner = owner;
    this.heat = new Heat({ label: "Best value by pairs of hyperparameters" });
  }

  close() {
    super.close();
    this.heat.close();
  }

  load() {
    return this.ask(async () => {
      this.axes ??= axesOf(
        await fetchPoints(this.owner.id, this.signal),
        this.owner.experiment.hparams ?? [],
      );
      const [x, y] = pairOf(this.axes, this.query);
      if (!y) return;
      const grid = await get(
        path("experiments", this.owner.id, "contour"),
        { x: x.name, y: y.name, bins: this.bins },
        this.signal,
      );
      this.heat.set({
        grid,
        xTitle: x.title,
        yTitle: y.title,
        smallerIsBetter: this.owner.experiment.searcher?.smaller_is_better ?? true,
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
    const [x, y] = pairOf(this.axes, this.query);
    if (!y)
      return empty(
        "Nothing to compare yet.",
        "A heat map needs two hyperparameters that differ between trials.",
      );
    return card(
      `Best ${this.owner.experiment.searcher?.metric ?? "value"}`,
      [
        pairSelects(this.axes, x, y),
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

export const open = (place, owner) => new HeatMap(place, owner).begin();
