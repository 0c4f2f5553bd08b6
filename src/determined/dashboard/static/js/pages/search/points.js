// What the views of a search share: all trials in columns, which hyperparameters are worth an axis.

import { get, path } from "../../api.js";
import { h } from "../../dom.js";
import { number, real, value } from "../../format.js";
import { setQuery } from "../../router.js";
import { select } from "../../widgets/parts.js";

export const fetchPoints = (id, signal) => get(path("experiments", id, "points"), {}, signal);

// Hyperparameters that differ between trials, as axes.
export function axesOf(points, declared) {
  return Object.entries(points.hparams)
    .filter(([, values]) => new Set(values.map(String)).size > 1)
    .map(([name, values]) => {
      const about = declared.find((one) => one.name === name);
      const numeric = values.every((it) => it === null || typeof it === "number");
      if (numeric && about?.type !== "categorical")
        return { name, title: name, kind: about?.type === "log" ? "log" : "linear", values };
      const categories = [...new Set(values.filter((it) => it !== null).map(String))].sort((a, b) =>
        a.localeCompare(b, "en", { numeric: true }),
      );
      return { name, title: name, kind: "category", values, categories };
    });
}

// Axes between whose values one can interpolate: choices among numbers are numbers too.
export const numericAxes = (axes) =>
  axes
    .filter(({ values }) => values.every((it) => it === null || typeof it === "number"))
    .map((axis) => (axis.kind === "category" ? { ...axis, kind: spread(axis.values) } : axis));

// Batch sizes and the like double from one to the next.
const spread = (values) => {
  const known = values.filter((it) => it !== null);
  const low = Math.min(...known);
  return low > 0 && Math.max(...known) / low >= 8 ? "log" : "linear";
};

// 0 for the worst trial, 1 for the best, by rank: one outlier does not grey out the rest.
export function goodness(values, smallerIsBetter) {
  const known = values
    .map((it, at) => [real(it), at])
    .filter(([it]) => Number.isFinite(it))
    .sort((a, b) => (smallerIsBetter ? b[0] - a[0] : a[0] - b[0]));
  const worth = values.map(() => null);
  known.forEach(([, at], rank) => {
    worth[at] = known.length > 1 ? rank / (known.length - 1) : 1;
  });
  return worth;
}

// The two axes that the address names, or the first two.
export function pairOf(axes, { sx, sy }) {
  const x = axes.find((one) => one.name === sx) ?? axes[0];
  return [x, axes.find((one) => one.name === sy && one !== x) ?? axes.find((one) => one !== x)];
}

export function pairSelects(axes, x, y) {
  const options = axes.map((one) => ({ value: one.name, text: one.title }));
  return [
    select("x", options, x.name, (sx) => setQuery({ sx })),
    select("y", options, y.name, (sy) => setQuery({ sy })),
  ];
}

// What is said of the trial at a place when one points at it.
export function describeTrial({ ids, values, hparams }, at, experiment) {
  const differing = Object.entries(hparams)
    .filter(([, all]) => new Set(all.map(String)).size > 1)
    .slice(0, 8);
  return [
    h("strong", `Trial ${ids[at]}`),
    h(
      "dl.facts",
      h("dt", experiment.searcher?.metric ?? "Best"),
      h("dd", number(real(values[at]), 6)),
      differing.map(([name, all]) => [h("dt.mono", name), h("dd.mono", value(all[at]))]),
    ),
  ];
}
