// What stands for a curve in a legend: its colour and its dashes.

import { h } from "../dom.js";

/** @param {{ color: string, dash: number[] }} look */
export function swatch({ color, dash }) {
  return h(
    "svg.swatch",
    { viewBox: "0 0 20 8", "aria-hidden": "true" },
    h("line", { x1: 0, x2: 20, y1: 4, y2: 4, stroke: color, "stroke-dasharray": dash.join(" ") }),
  );
}
