// Curves that belong together as one: their mean, with a band of one standard deviation.

/**
 * @import { Series } from "./series.js"
 * @typedef {Pick<Series, "x" | "y" | "total">} Member
 */

/**
 * The value of a curve at x, between its points on a straight line; NaN before its start and after its end.
 * @param {Member} curve
 * @param {number} x
 */
function valueAt({ x: xs, y: ys }, x) {
  let [low, high] = [0, xs.length - 1];
  if (high < 0 || x < xs[0] || x > xs[high]) return NaN;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle;
    else high = middle;
  }
  if (xs[low] === x || low === high) return ys[low];
  if (xs[high] === x) return ys[high];
  return ys[low] + ((ys[high] - ys[low]) * (x - xs[low])) / (xs[high] - xs[low]);
}

/**
 * The mean of some curves at every x that one of them has, over those that reach it.
 * @param {Member[]} curves
 */
export function meanCurve(curves) {
  const xs = [...new Set(curves.flatMap((one) => [...one.x]))].sort((a, b) => a - b);
  const columns = /** @type {Float64Array[]} */ (
    Array.from({ length: 4 }, () => new Float64Array(xs.length))
  );
  const [y, lo, hi, counts] = columns;
  xs.forEach((x, at) => {
    const values = curves.map((one) => valueAt(one, x)).filter(Number.isFinite);
    const { mean, spread } = summary(values);
    counts[at] = values.length;
    y[at] = mean ?? NaN;
    lo[at] = y[at] - (spread ?? 0);
    hi[at] = y[at] + (spread ?? 0);
  });
  const total = curves.reduce((sum, one) => sum + one.total, 0);
  return { x: Float64Array.from(xs), y, lo, hi, counts, total, n: xs.length, smooth: null };
}

/**
 * Mean and standard deviation of a sample; null where there are too few values.
 * @param {number[]} values
 * @returns {{ mean: number | null, spread: number | null }}
 */
export function summary(values) {
  const { length } = values;
  if (!length) return { mean: null, spread: null };
  const mean = values.reduce((sum, it) => sum + it, 0) / length;
  if (length < 2) return { mean, spread: null };
  const squares = values.reduce((sum, it) => sum + (it - mean) ** 2, 0);
  return { mean, spread: Math.sqrt(squares / (length - 1)) };
}

export const EVERYTHING = "*";

/**
 * What to group trials by if nothing was chosen: by all hyperparameters where trials repeat them, else not.
 * @param {{ ids: number[], hparams: Record<string, unknown[]> }} trials
 */
export function usualGrouping({ ids, hparams }) {
  const known = new Set(ids.map((_, at) => groupName(hparams, EVERYTHING, at)));
  return known.size < ids.length ? EVERYTHING : "";
}

/**
 * The group of a trial: the value of one hyperparameter, or of all that differ.
 * @param {Record<string, unknown[]>} hparams
 * @param {string} by a hyperparameter, or `EVERYTHING`
 * @param {number} at place of the trial
 */
export function groupName(hparams, by, at) {
  /** @param {unknown} it */
  const text = (it) => (typeof it === "string" ? it : (JSON.stringify(it) ?? "–"));
  if (by !== EVERYTHING) return `${by.split(".").at(-1)} = ${text(hparams[by]?.[at])}`;
  const differing = Object.entries(hparams).filter(([, all]) => new Set(all.map(text)).size > 1);
  return differing.map(([name, all]) => `${name} = ${text(all[at])}`).join(", ") || "All seeds";
}
