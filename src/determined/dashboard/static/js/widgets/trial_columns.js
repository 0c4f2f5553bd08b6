// The columns of a table of trials.

import { h } from "../dom.js";
import { ago, bytes, count, duration, moment, number, real, value } from "../format.js";
import { stateBadge } from "./parts.js";

/** @import { Column } from "./table.js" */

export const TRIAL_STATES = ["ACTIVE", "PAUSED", "COMPLETED", "STOPPED", "CANCELED", "ERROR"];

/**
 * @param {Pick<Api.HparamJson, "name" | "differs">[]} hparams
 * @param {Pick<Api.SearcherName, "metric" | "smaller_is_better">} searcher
 * @param {number | null} bestId
 * @returns {Column<Api.TrialJson>[]}
 */
export function trialColumns(hparams, { metric, smaller_is_better: smaller }, bestId) {
  return [
    {
      key: "id",
      title: "Trial",
      always: true,
      number: true,
      fit: true,
      cell: (row) => h("a", { href: `/trials/${row.id}` }, row.id),
      plain: (row) => row.id,
    },
    {
      key: "state",
      title: "State",
      cell: (row) => stateBadge(row.state, row.reason),
      plain: (row) => row.state,
    },
    {
      key: "best",
      title: metric ? `Best ${metric}` : "Best",
      number: true,
      first: smaller ? "asc" : "desc",
      cell: (row) =>
        h(
          row.id === bestId ? "span.best-mark" : "span",
          row.id === bestId ? "★ " : "",
          number(real(row.best_validation)),
        ),
      plain: (row) => row.best_validation,
      hover: (row) => (row.best_steps === null ? null : `at batch ${row.best_steps}`),
    },
    {
      key: "latest",
      title: "Latest",
      number: true,
      cell: (row) => number(real(row.latest_validation)),
      plain: (row) => row.latest_validation,
    },
    {
      key: "steps",
      title: "Batches",
      number: true,
      cell: (row) => number(row.steps),
      plain: (row) => row.steps,
    },
    ...hparams.map(
      ({ name, differs }) =>
        /** @type {Column<Api.TrialJson>} */ ({
          key: `hparam:${name}`,
          title: name,
          kind: "hyperparameter",
          rare: !differs,
          number: true,
          cell: (row) => value(row.hparams[name]),
          plain: (row) => row.hparams[name],
        }),
    ),
    {
      key: "rung",
      title: "Rung",
      number: true,
      sort: null,
      rare: true,
      cell: (row) => number(row.rung),
      plain: (row) => row.rung,
    },
    {
      key: "restarts",
      title: "Restarts",
      number: true,
      rare: true,
      cell: (row) => number(row.restarts),
      plain: (row) => row.restarts,
    },
    {
      key: "duration",
      title: "Duration",
      number: true,
      cell: (row) => duration(row.duration),
      plain: (row) => row.duration,
    },
    {
      key: "created",
      title: "Created",
      hidden: true,
      cell: (row) => ago(row.created),
      plain: (row) => moment(row.created),
      hover: (row) => moment(row.created),
    },
    {
      key: "checkpoints",
      title: "Checkpoints",
      number: true,
      sort: null,
      hidden: true,
      cell: (row) => (row.checkpoint_count ? bytes(row.checkpoint_size) : "–"),
      plain: (row) => row.checkpoint_size,
      hover: (row) => count(row.checkpoint_count, "checkpoint"),
    },
    {
      key: "decision",
      title: "Decision",
      sort: null,
      rare: true,
      cell: (row) => row.decision,
      plain: (row) => row.decision,
      hover: (row) => row.decision,
    },
  ];
}

/**
 * Columns chosen in the address, or else those in which the rows differ.
 * @template Row
 * @param {Column<Row>[]} all
 * @param {Row[]} rows
 * @param {string | undefined} chosen
 */
export function shownColumns(all, rows, chosen) {
  if (chosen) {
    const wanted = new Set(chosen.split(","));
    return all.filter((one) => one.always || wanted.has(one.key));
  }
  /** @param {Column<Row>} one */
  const differs = (one) => new Set(rows.map((row) => JSON.stringify(one.plain(row) ?? null))).size > 1;
  return all.filter(
    (one) => !one.hidden && (!one.rare || (one.key.startsWith("hparam:") ? false : differs(one))),
  );
}
