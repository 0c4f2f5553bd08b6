// What the views of a search share: all trials in columns, which hyperparameters are worth an axis.

import { get, path } from "../../api.js";
import { h } from "../../dom.js";
import { finite, number, real, value } from "../../format.js";
import { setQuery } from "../../router.js";
import { select } from "../../widgets/parts.js";

/**
 * @import { Axis } from "../../chart/parallel.js"
 * @import { PlotSeries } from "../../chart/plot.js"
 *
 * @typedef {PlotSeries & { ids: number[] }} TrialDots
 */

/**
 * @param {number} id
 * @param {AbortSignal} signal
 */
export async function fetchPoints(id, signal) {
  const [points, shares] = await Promise.all([
    get(path("experiments", id, "points"), {}, signal),
    get(path("experiments", id, "importance"), {}, signal),
  ]);
  return { ...points, hparams: importantFirst(points.hparams, shares.values) };
}

/**
 * The hyperparameters that matter most come first; the order of the others stays.
 * @template Column
 * @param {Record<string, Column>} hparams
 * @param {Record<string, Api.Number>} shares
 * @returns {Record<string, Column>}
 */
export function importantFirst(hparams, shares) {
  const share = (/** @type {string} */ name) => finite(shares[name]) ?? -1;
  return Object.fromEntries(Object.entries(hparams).sort(([a], [b]) => share(b) - share(a)));
}

/**
 * Hyperparameters that differ between trials, as axes.
 * @param {Api.PointsJson} points
 * @param {Api.HparamJson[]} declared
 * @returns {Axis[]}
 */
export function axesOf(points, declared) {
  return Object.entries(points.hparams)
    .filter(([, values]) => new Set(values.map(String)).size > 1)
    .map(([name, values]) => {
      const about = declared.find((one) => one.name === name);
      const numeric = values.every((it) => it === null || typeof it === "number");
      if (numeric && about?.type !== "categorical") {
        const isWhole = values.every((it) => it === null || Number.isInteger(it));
        const kind = about?.type === "log" || about?.type === "log_int" ? "log" : "linear";
        return { name, title: name, kind, values, isWhole };
      }
      const categories = [...new Set(values.filter((it) => it !== null).map(String))].sort((a, b) =>
        a.localeCompare(b, "en", { numeric: true }),
      );
      return { name, title: name, kind: "category", values, categories };
    });
}

/**
 * Places of values on an axis; a category has the place of its name.
 * @param {Axis} axis
 */
export const placesOf = ({ kind, values, categories = [] }) =>
  Float64Array.from(values, (it) =>
    kind === "category" ? (it === null ? NaN : categories.indexOf(String(it))) : (real(it) ?? NaN),
  );

/**
 * 0 for the worst trial, 1 for the best, by rank: one outlier does not grey out the rest.
 * @param {(Api.Number | null)[]} values
 * @param {boolean} smallerIsBetter
 */
export function goodness(values, smallerIsBetter) {
  const known = values
    .flatMap((one, at) => {
      const it = finite(one);
      return it === null ? [] : [{ it, at }];
    })
    .sort((a, b) => (smallerIsBetter ? b.it - a.it : a.it - b.it));
  /** @type {(number | null)[]} */
  const worth = values.map(() => null);
  known.forEach(({ at }, rank) => {
    worth[at] = known.length > 1 ? rank / (known.length - 1) : 1;
  });
  return worth;
}

/**
 * Which values the colours of a search stand for: those of the best, the middle and the worst trial.
 * @param {(Api.Number | null)[]} values
 * @param {boolean} smallerIsBetter
 */
export function rampMarks(values, smallerIsBetter) {
  const known = values.map(finite).filter((it) => it !== null);
  known.sort((a, b) => (smallerIsBetter ? b - a : a - b));
  if (known.length < 2) return [];
  return [0, 0.5, 1].map((share) => ({
    share,
    text: number(known[Math.round(share * (known.length - 1))], 3),
  }));
}

/**
 * Missing values and NaN come last, whichever the order; numbers come before other values.
 * @param {unknown} a
 * @param {unknown} b
 * @param {1 | -1} sign
 */
export function byValue(a, b, sign) {
  /** @param {unknown} it */
  const lost = (it) => it === null || it === undefined || Number.isNaN(it);
  if (lost(a) || lost(b)) return Number(lost(a)) - Number(lost(b));
  if (typeof a === "number" && typeof b === "number") return (a - b) * sign;
  if (typeof a === "number" || typeof b === "number") return (typeof a === "number" ? -1 : 1) * sign;
  const [one, other] = [value(a), value(b)];
  return (one < other ? -1 : one > other ? 1 : 0) * sign;
}

/**
 * The two axes that the address names, or the first two.
 * @template {{ name: string }} Kind
 * @param {Kind[]} axes
 * @param {Ui.Query} query
 * @returns {[Kind, Kind] | null} null where there are not two
 */
export function pairOf(axes, { sx, sy }) {
  const x = axes.find((one) => one.name === sx) ?? axes[0];
  const y = axes.find((one) => one.name === sy && one !== x) ?? axes.find((one) => one !== x);
  return x && y ? [x, y] : null;
}

/**
 * @param {Axis[]} axes
 * @param {Axis} x
 * @param {Axis} y
 */
export function pairSelects(axes, x, y) {
  const options = axes.map((one) => ({ value: one.name, text: one.title }));
  return [
    select("x", options, x.name, (sx) => setQuery({ sx })),
    select("y", options, y.name, (sy) => setQuery({ sy })),
  ];
}

/**
 * What is said of the trial at a place when one points at it.
 * @param {Api.PointsJson} points
 * @param {number} at
 * @param {Api.ExperimentDetail} experiment
 * @returns {Ui.Child}
 */
export function describeTrial({ ids, values, hparams }, at, experiment) {
  const differing = Object.entries(hparams)
    .filter(([, all]) => new Set(all.map(String)).size > 1)
    .slice(0, 8);
  return [
    h("strong", `Trial ${ids[at]}`),
    h(
      "dl.facts",
      h("dt", experiment.searcher.metric ?? "Best"),
      h("dd", number(real(values[at]), 6)),
      differing.map(([name, all]) => [h("dt.mono", name), h("dd.mono", value(all[at]))]),
    ),
  ];
}
