// The trials of an experiment as a table.

import { get, path, query as toQuery } from "../../api.js";
import { h, hold } from "../../dom.js";
import { count, metricTitle, number } from "../../format.js";
import { Page } from "../../page.js";
import { go, setQuery } from "../../router.js";
import { openPicker } from "../../widgets/menu.js";
import { Paged } from "../../widgets/paged.js";
import { button, empty, problem, select, skeleton } from "../../widgets/parts.js";
import { Table } from "../../widgets/table.js";
import { toast } from "../../widgets/toast.js";
import { shownColumns, TRIAL_STATES, trialColumns } from "../../widgets/trial_columns.js";

/**
 * @import { ExperimentPage } from "../experiment.js"
 * @import { Column } from "../../widgets/table.js"
 * @import { Place } from "../../router.js"
 * @import { Change } from "../../live.js"
 */

class Trials extends Page {
  /**
   * @param {Place} place
   * @param {ExperimentPage} owner
   */
  constructor(place, owner) {
    super(place);
    this.owner = owner;
    this.paged = new Paged(
      (offset, limit) =>
        get(path("experiments", owner.id, "trials"), { ...this.#filters(), offset, limit }, this.signal),
      () => this.draw(),
    );
    /** @type {Table<Api.TrialJson>} */
    this.table = new Table({
      label: "Trials",
      id: (row) => row.id,
      height: "calc(100vh - 300px)",
      onsort: (sort, order) => setQuery({ sort, order }),
      onselect: () => this.draw(),
      onneed: (first, last) => this.paged.known && this.paged.need(first, last),
    });
  }

  #filters() {
    return {
      sort: this.query.sort,
      order: this.query.order,
      state: this.query.state,
      columns: this.query.columns
        ?.split(",")
        .filter((key) => key.startsWith("metric:"))
        .join(","),
    };
  }

  load() {
    return this.ask(() => this.paged.reset());
  }

  /** @param {Change} change */
  changed({ experiments }) {
    if (!experiments?.includes(this.owner.id)) return;
    const at = this.table.scroller.scrollTop / 32;
    this.soon(() => this.ask(() => this.paged.refresh(Math.max(0, at - 10), at + 50)));
  }

  /** @returns {Column<Api.TrialJson>[]} */
  #allColumns() {
    const { hparams, searcher, metrics, best_trial_id } = this.owner.experiment;
    return [
      ...trialColumns(hparams, searcher, best_trial_id),
      ...metrics.map(({ group, name }) => ({
        key: `metric:${group}.${name}`,
        title: metricTitle({ group, name }),
        kind: "metric",
        rare: true,
        number: true,
        cell: (/** @type {Api.TrialJson} */ row) => number(row.columns[`metric:${group}.${name}`]),
        plain: (/** @type {Api.TrialJson} */ row) => row.columns[`metric:${group}.${name}`],
      })),
    ];
  }

  view() {
    const all = this.#allColumns();
    const columns = shownColumns(
      all.filter((one) => this.query.columns || !one.key.startsWith("metric:")),
      this.paged.loaded,
      this.query.columns,
    );
    this.table.set({
      columns,
      rows: this.paged.rows,
      total: this.paged.total,
      sort: { key: this.query.sort ?? "id", order: this.query.order ?? "asc" },
      empty: () =>
        !this.paged.known
          ? this.error
            ? null
            : skeleton(8)
          : this.query.state
            ? empty("No trial is in that state.", h("a", { href: location.pathname }, "Show all"))
            : empty("No trials yet."),
    });
    return [
      this.error ? problem(this.error, () => this.load()) : null,
      h(
        "section.card",
        { "aria-label": "Trials" },
        h(
          "div.bar.table-tools",
          select(
            "State",
            [
              { value: "", text: "All states" },
              ...TRIAL_STATES.map((state) => ({ value: state, text: state.toLowerCase() })),
            ],
            this.query.state ?? "",
            (state) => setQuery({ state }),
            { hideLabel: true },
          ),
          h("span.count", this.paged.known ? count(this.paged.total, "trial") : ""),
          button(
            "Columns",
            (event) =>
              openPicker(
                event.currentTarget,
                "Columns",
                all
                  .filter((one) => !one.always)
                  .map((one) => ({ key: one.key, label: one.title, kind: one.kind })),
                columns.map((one) => one.key),
                (keys) => setQuery({ columns: keys.join(",") }, { replace: true }),
              ),
            { kind: "quiet", picture: "columns" },
          ),
          h(
            "a.button.quiet",
            {
              href: `/api/export/trials.csv?${toQuery({ experiment: this.owner.id, ...this.#filters() })}`,
              download: `experiment-${this.owner.id}-trials.csv`,
            },
            "CSV",
          ),
        ),
        hold(this.table.node),
      ),
      this.table.selected.size
        ? h(
            "div.selection",
            { role: "toolbar", "aria-label": "Selected trials" },
            h("strong", `${this.table.selected.size} selected`),
            button("Compare", () => this.#compare(), { kind: "main" }),
            button("", () => this.table.clearSelection(), {
              kind: "quiet",
              title: "Clear the selection",
              picture: "close",
            }),
          )
        : null,
    ];
  }

  #compare() {
    if (this.table.selected.size) go(`/compare?trials=${[...this.table.selected].join(",")}`);
    else toast("Select trials with x first.");
  }

  keys() {
    return [
      ...this.table.keys((row) => go(`/trials/${row.id}`)),
      { key: "c", what: "Compare the selection", run: () => this.#compare() },
    ];
  }
}

/**
 * @param {Place} place
 * @param {ExperimentPage} owner
 */
export const open = (place, owner) => new Trials(place, owner).begin();
