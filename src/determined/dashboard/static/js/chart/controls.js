// The switches of learning curves. Their state is in the address.

import { h } from "../dom.js";
import { metricTitle } from "../format.js";
import { setQuery } from "../router.js";
import { button, select } from "../widgets/parts.js";
import { X_AXES } from "./curves.js";

/** @import { CurveOptions } from "./curves.js" */

/**
 * @param {Ui.Query} query
 * @returns {CurveOptions}
 */
export function curveOptions(query) {
  return {
    x: query.x ?? "steps",
    from: query.from,
    to: query.to,
    smooth: Number(query.smooth ?? 0),
    logx: query.logx === "1",
    logy: query.logy === "1",
    envelope: query.envelope === "1",
    means: query.means === "1",
  };
}

/**
 * Curves of every batch are the whole truth, curves of reports are means over many batches.
 * @param {Ui.Query} query
 */
export const everyBatch = (query) => query.reports !== "1";

/**
 * @param {Ui.Query} query
 * @param {{ group: string, name: string }[]} [metrics]
 * @param {{ many?: boolean, batches?: boolean }} [how]
 * @returns {Ui.Child}
 */
export function curveControls(query, metrics = [], { many = false, batches = false } = {}) {
  const options = curveOptions(query);
  const { x = "steps" } = options;
  const axes = [
    ...X_AXES,
    ...metrics.map(({ group, name }) => ({
      value: `metric:${group}.${name}`,
      text: metricTitle({ group, name }),
    })),
  ];
  /**
   * @param {"logx" | "logy" | "means" | "envelope"} name
   * @param {string} text
   * @param {string} title
   */
  const toggle = (name, text, title) =>
    button(text, () => setQuery({ [name]: !options[name] }), { pressed: options[name], title });
  return [
    select("Over", axes, x, (it) => setQuery({ x: it === "steps" ? "" : it, from: "", to: "" })),
    h(
      "label.labelled",
      { title: "Exponential moving average over all points; the raw curve stays behind it" },
      "Smooth",
      h("input.slider", {
        type: "range",
        min: 0,
        max: 0.99,
        step: 0.01,
        value: String(options.smooth),
        "aria-label": "Smoothing",
        onchange: (event) => setQuery({ smooth: Number(event.currentTarget.value) || "" }, { replace: true }),
      }),
      h("output.slider-value", options.smooth ? options.smooth.toFixed(2) : "off"),
    ),
    toggle("logy", "Log y", "Logarithmic vertical axis"),
    x === "wall" || x === "relative" ? null : toggle("logx", "Log x", "Logarithmic horizontal axis"),
    batches
      ? button("Every batch", () => setQuery({ reports: everyBatch(query) }), {
          pressed: everyBatch(query),
          title: "Show values of single batches instead of reported means",
        })
      : null,
    batches && everyBatch(query)
      ? toggle("means", "Fit means", "Scale to the means; bands may be cut off")
      : null,
    many ? toggle("envelope", "Best so far", "The best value of any trial up to that point") : null,
  ];
}

/** @param {[number, number] | null} range */
export const zoomInAddress = (range) =>
  setQuery({
    from: range ? Number(range[0].toPrecision(10)) : "",
    to: range ? Number(range[1].toPrecision(10)) : "",
  });
