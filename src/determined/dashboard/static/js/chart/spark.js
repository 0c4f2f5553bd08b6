// A curve the size of a word.

import { h } from "../dom.js";

/**
 * @param {Api.Number[] | undefined} values
 * @param {string} label
 */
export function spark(values, label) {
  const ys = (values ?? []).map(Number).filter(Number.isFinite);
  if (ys.length < 2) return null;
  const [low, high] = [Math.min(...ys), Math.max(...ys)];
  const points = ys.map(
    (y, at) =>
      `${((at / (ys.length - 1)) * 72).toFixed(1)},${(high > low ? 18 - ((y - low) / (high - low)) * 16 : 10).toFixed(1)}`,
  );
  return h(
    "svg.spark",
    { viewBox: "0 0 72 20", role: "img", "aria-label": label },
    h("polyline", { points: points.join(" ") }),
  );
}
