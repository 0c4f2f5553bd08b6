// All trials in columns, and which of their hyperparameters are worth an axis. Pure but for the question.

import { get, path } from "../../api.js";
import { real } from "../../format.js";

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
