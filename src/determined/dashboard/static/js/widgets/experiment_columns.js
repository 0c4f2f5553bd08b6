// The columns of the table of experiments.

import { spark } from "../chart/spark.js";
import { h } from "../dom.js";
import { ago, bytes, count, duration, goal, moment, number, percent, real } from "../format.js";
import { BEST_ORDER, bestValue, progressBar, stateBadge } from "./parts.js";

/** @import { Column } from "./table.js" */

/**
 * `rare` ones are shown where rows differ in them, `hidden` ones when they are asked for.
 * @param {Map<number, Api.SparkJson>} sparks
 * @param {string | null} metric the one that all rows share, if they do
 * @returns {Column<Api.ExperimentJson>[]}
 */
export const experimentColumns = (sparks, metric) => [
  {
    key: "id",
    title: "ID",
    always: true,
    wide: true,
    number: true,
    fit: true,
    cell: (row) => row.id,
    plain: (row) => row.id,
  },
  {
    key: "name",
    title: "Name",
    always: true,
    first: "asc",
    plain: (row) => row.name,
    hover: (row) => row.description || row.name,
    cell: (row) =>
      h(
        "span.name",
        h("a", { href: `/experiments/${row.id}` }, row.name),
        row.unmanaged
          ? h("span.chip", { title: "A script that was not started by the platform" }, "unmanaged")
          : null,
        row.archived ? h("span.chip", "archived") : null,
        row.labels.slice(0, 3).map((label) => h("span.chip", label)),
      ),
  },
  {
    key: "state",
    title: "State",
    first: "asc",
    cell: (row) => stateBadge(row.state, row.reason),
    plain: (row) => row.state,
  },
  {
    key: "progress",
    title: "Progress",
    wide: true,
    plain: (row) => row.progress,
    cell: (row) =>
      h("span.with-text", progressBar(row.progress, row.state), h("small", percent(row.progress))),
  },
  {
    key: "best",
    title: metric ? `Best ${metric}` : "Best",
    number: true,
    about: metric ? null : BEST_ORDER,
    plain: (row) => row.best_validation,
    hover: (row) =>
      row.best_trial_id && row.searcher.metric
        ? `${goal(row.searcher)}: ${number(real(row.best_validation), 6)} by trial ${row.best_trial_id}`
        : null,
    cell: (row) => bestValue(row.best_validation, metric ? null : row.searcher.metric),
  },
  {
    key: "spark",
    title: "Curve",
    sort: null,
    cell: (row) => spark(sparks.get(row.id)?.y, `Curve of ${sparks.get(row.id)?.metric}`),
    plain: () => "",
  },
  {
    key: "trials",
    title: "Trials",
    number: true,
    cell: (row) => number(row.trials),
    plain: (row) => row.trials,
    hover: (row) =>
      Object.entries(row.states)
        .map(([state, n]) => `${n} ${state.toLowerCase()}`)
        .join(", "),
  },
  {
    key: "created",
    title: "Created",
    cell: (row) => ago(row.created),
    plain: (row) => moment(row.created),
    hover: (row) => moment(row.created),
  },
  {
    key: "duration",
    title: "Duration",
    number: true,
    cell: (row) => duration(row.duration),
    plain: (row) => row.duration,
  },
  {
    key: "metric",
    title: "Metric",
    sort: null,
    hidden: true,
    cell: (row) => row.searcher.metric ?? "–",
    plain: (row) => row.searcher.metric,
  },
  {
    key: "searcher",
    title: "Searcher",
    sort: null,
    rare: true,
    cell: (row) => row.searcher.name,
    plain: (row) => row.searcher.name,
  },
  {
    key: "project",
    title: "Project",
    sort: null,
    rare: true,
    cell: (row) => row.project.name,
    plain: (row) => row.project.name,
  },
  {
    key: "owner",
    title: "Owner",
    sort: null,
    rare: true,
    cell: (row) => row.owner,
    plain: (row) => row.owner,
  },
  {
    key: "checkpoint_size",
    title: "Checkpoints",
    number: true,
    hidden: true,
    cell: (row) => (row.checkpoint_count ? bytes(row.checkpoint_size) : "–"),
    plain: (row) => row.checkpoint_size,
    hover: (row) => count(row.checkpoint_count, "checkpoint"),
  },
];
