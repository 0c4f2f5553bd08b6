// All experiments: search, filter, sort, choose, act.

import { get, query as toQuery } from "../api.js";
import { focusOn, h, hold } from "../dom.js";
import { count, value } from "../format.js";
import { Page } from "../page.js";
import { go, setQuery } from "../router.js";
import { act, labelExperiments, verbButtons } from "../verbs.js";
import { dialog } from "../widgets/dialog.js";
import { experimentColumns } from "../widgets/experiment_columns.js";
import { openMenu, openPicker } from "../widgets/menu.js";
import { Paged } from "../widgets/paged.js";
import { button, copyable, empty, problem, select, skeleton, stateBadge } from "../widgets/parts.js";
import { Table } from "../widgets/table.js";
import { toast } from "../widgets/toast.js";

/**
 * @import { Column } from "../widgets/table.js"
 * @import { Place } from "../router.js"
 * @import { Change } from "../live.js"
 */

const STATES = ["ACTIVE", "PAUSED", "COMPLETED", "CANCELED", "ERROR"];
const FILTERS = /** @type {const} */ ([
  "search",
  "state",
  "label",
  "project",
  "archived",
  "unmanaged",
  "metric",
  "metric_min",
  "metric_max",
  "sort",
  "order",
]);

class Experiments extends Page {
  /** @param {Place} place */
  constructor(place) {
    super(place);
    /** @type {Api.ColumnJson[]} */
    this.available = [];
    /** @type {Map<number, Api.SparkJson>} */
    this.sparks = new Map();
    /** @type {Api.ProjectJson[]} */
    this.projects = [];
    this.typing = 0;
    this.paged = new Paged(
      (offset, limit) => this.#fetch(offset, limit),
      () => this.draw(),
    );
    /** @type {Table<Api.ExperimentJson>} */
    this.table = new Table({
      label: "Experiments",
      id: (row) => row.id,
      height: "calc(100vh - 190px)",
      onsort: (sort, order) => setQuery({ sort, order }),
      onselect: () => this.draw(),
      onneed: (first, last) => this.paged.known && this.paged.need(first, last),
    });
    get("/api/projects", {}, this.signal).then(
      (answer) => {
        this.projects = answer.rows;
        this.draw();
      },
      () => {},
    ); // the filter is left out then
  }

  #filters() {
    const chosen = /** @type {{ [Name in (typeof FILTERS)[number]]?: string }} */ (
      Object.fromEntries(FILTERS.map((name) => [name, this.query[name]]))
    );
    return {
      ...chosen,
      archived: this.query.archived === "1" ? "" : "0",
    };
  }

  /**
   * @param {number} offset
   * @param {number} limit
   */
  async #fetch(offset, limit) {
    const chosen = this.query.columns?.split(",").filter((key) => key.includes(":")) ?? this.#defaultExtras();
    const answer = await get(
      "/api/experiments",
      { ...this.#filters(), offset, limit, columns: chosen.join(",") },
      this.signal,
    );
    const first = this.available.length === 0;
    this.available = answer.columns.available;
    const ids = answer.rows.map((row) => row.id);
    if (ids.length) {
      get("/api/experiments/sparks", { ids: ids.join(","), px: 60 }, this.signal).then(
        (sparks) => {
          for (const [id, one] of Object.entries(sparks)) this.sparks.set(Number(id), one);
          this.draw();
        },
        () => {},
      ); // a missing spark line is no reason for an alarm
    }
    if (first && !this.query.columns && this.#defaultExtras().length) setTimeout(() => this.load());
    return answer;
  }

  #defaultExtras() {
    return this.available
      .filter((one) => one.differs && one.key.startsWith("hparam:"))
      .slice(0, 12)
      .map((one) => one.key);
  }

  load() {
    return this.ask(() => this.paged.reset());
  }

  /** @param {Change} change */
  changed({ experiments }) {
    if (!experiments?.length) return;
    const at = this.table.scroller.scrollTop / 32;
    this.soon(() => this.ask(() => this.paged.refresh(Math.max(0, at - 10), at + 50)));
  }

  /** The metric by which all rows that have a best one chose it; null if they differ. */
  #metric() {
    const measured = this.paged.loaded.filter((row) => row.best_validation !== null);
    const metrics = new Set(measured.map((row) => row.searcher.metric));
    return metrics.size === 1 ? [...metrics][0] : null;
  }

  /** @returns {Column<Api.ExperimentJson>[]} */
  #allColumns() {
    const extra = this.available
      .filter((one) => one.key.includes(":"))
      .map((one) => ({
        key: one.key,
        title: one.label.replace(/^(hparam|metric):/, ""),
        kind: one.key.startsWith("hparam") ? "hyperparameter" : "metric",
        number: true,
        cell: (/** @type {Api.ExperimentJson} */ row) => value(row.columns[one.key]),
        plain: (/** @type {Api.ExperimentJson} */ row) => row.columns[one.key],
      }));
    return [...experimentColumns(this.sparks, this.#metric()), ...extra];
  }

  #columns() {
    const all = this.#allColumns();
    if (this.query.columns) {
      const wanted = new Set(this.query.columns.split(","));
      return all.filter((one) => wanted.has(one.key) || one.always);
    }
    const rows = this.paged.loaded;
    const extras = new Set(
      this.#defaultExtras()
        .filter((key) => mostlyKnown(rows, key))
        .slice(0, 3),
    );
    return all.filter(
      (one) =>
        !one.hidden &&
        (one.key.includes(":")
          ? extras.has(one.key)
          : !one.rare ||
            (rows.length > 1 && new Set(rows.map((row) => JSON.stringify(one.plain(row)))).size > 1)),
    );
  }

  get title() {
    return "Experiments";
  }

  view() {
    const columns = this.#columns();
    const filtered = FILTERS.slice(0, -2).some((name) => this.query[name]);
    this.table.set({
      columns,
      rows: this.paged.rows,
      total: this.paged.total,
      sort: { key: this.query.sort ?? "id", order: this.query.order ?? "desc" },
      empty: () =>
        !this.paged.known
          ? this.error
            ? null
            : skeleton(12)
          : filtered
            ? empty("No experiments match these filters.", h("a", { href: "/" }, "Show all"))
            : howToBegin(),
    });
    return [
      h("h1.hidden-text", "Experiments"),
      this.error ? problem(this.error, () => this.load()) : null,
      h("section.card", { "aria-label": "Experiments" }, this.#tools(columns), hold(this.table.node)),
      this.#selectionBar(),
    ];
  }

  /** @param {Column<Api.ExperimentJson>[]} columns */
  #tools(columns) {
    const { query } = this;
    const chosen = query.state?.split(",") ?? [];
    const total = this.paged.known ? count(this.paged.total, "experiment") : "";
    const moreFilters = Boolean(query.metric || query.metric_min || query.metric_max || query.label);
    return h(
      "div.bar.table-tools",
      h("input.field.search", {
        type: "search",
        placeholder: "Search name, label, id",
        "aria-label": "Search experiments",
        value: query.search ?? "",
        oninput: (event) => {
          const search = event.currentTarget.value;
          clearTimeout(this.typing);
          this.typing = setTimeout(() => setQuery({ search }, { replace: true }), 150);
        },
      }),
      button(
        chosen.length ? `State: ${chosen.length === 1 ? chosen[0].toLowerCase() : chosen.length}` : "State",
        (event) => this.#stateMenu(event.currentTarget),
        { pressed: chosen.length ? true : null },
      ),
      this.projects.length > 1
        ? select(
            "Project",
            [
              { value: "", text: "All projects" },
              ...this.projects.map((one) => ({
                value: String(one.id),
                text: `${one.workspace} / ${one.name}`,
              })),
            ],
            query.project ?? "",
            (project) => setQuery({ project }),
            { hideLabel: true },
          )
        : null,
      button(moreFilters ? "More filters on" : "More", () => this.#more(), {
        pressed: moreFilters ? true : null,
      }),
      button("Archived", () => setQuery({ archived: query.archived === "1" ? "" : "1" }), {
        pressed: query.archived === "1",
      }),
      h("span.count", { "aria-live": "polite" }, total),
      query.project ? h("a.button.quiet", { href: `/trials?project=${query.project}` }, "Its trials") : null,
      button(
        "Columns",
        (event) =>
          openPicker(
            event.currentTarget,
            "Columns",
            this.#allColumns()
              .filter((one) => !one.always)
              .map((one) => ({ key: one.key, label: one.title, kind: one.kind })),
            columns.map((one) => one.key),
            (keys) => setQuery({ columns: keys.join(",") }, { replace: true }),
          ),
        { kind: "quiet", picture: "columns" },
      ),
      h(
        "a.button.quiet",
        { href: `/api/export/experiments.csv?${toQuery(this.#filters())}`, download: "experiments.csv" },
        "CSV",
      ),
    );
  }

  /** @param {Element} anchor */
  #stateMenu(anchor) {
    openMenu(anchor, "States", (menu) => {
      const chosen = new Set(this.query.state?.split(",").filter(Boolean) ?? []);
      return STATES.map((state) =>
        h(
          "label",
          { key: state },
          h("input", {
            type: "checkbox",
            checked: chosen.has(state),
            onchange: () => {
              if (!chosen.delete(state)) chosen.add(state);
              setQuery({ state: [...chosen].join(",") });
              menu.redraw();
            },
          }),
          stateBadge(state),
        ),
      );
    });
  }

  async #more() {
    const { query } = this;
    /** @type {(name: string, label: string, more?: Record<string, unknown>) => Ui.Child} */
    const field = (name, label, more = {}) =>
      h("label.labelled.wide-field", label, h("input.field", { name, value: query[name] ?? "", ...more }));
    const metrics = [...new Set(this.paged.loaded.map((row) => row.searcher.metric))].filter(Boolean);
    const answer = await dialog(
      "Filter experiments",
      [
        field("label", "Label"),
        field("metric", "Metric", { list: "metrics-here", placeholder: "any" }),
        h(
          "datalist#metrics-here",
          metrics.map((value) => h("option", { value })),
        ),
        field("metric_min", "Best at least", { inputmode: "decimal" }),
        field("metric_max", "Best at most", { inputmode: "decimal" }),
      ],
      { ok: "Filter" },
    );
    if (answer) setQuery(answer);
  }

  #selected() {
    return this.paged.loaded.filter((row) => this.table.selected.has(row.id));
  }

  #selectionBar() {
    const rows = this.#selected();
    if (!rows.length) return null;
    const done = () => this.load();
    return h(
      "div.selection",
      { role: "toolbar", "aria-label": "Selected experiments" },
      h("strong", `${rows.length} selected`),
      verbButtons(rows, done),
      button("Label", () => this.#label(rows)),
      button("Compare", () => this.#compare(), { kind: "main" }),
      button("", () => this.table.clearSelection(), {
        kind: "quiet",
        title: "Clear the selection",
        picture: "close",
      }),
    );
  }

  /** @param {Api.ExperimentJson[]} rows */
  async #label(rows) {
    await labelExperiments(rows);
    this.load();
  }

  #compare() {
    const trials = this.#selected()
      .map((row) => row.best_trial_id)
      .filter(Boolean);
    if (trials.length) go(`/compare?trials=${trials.join(",")}`);
    else toast("None of these has a trial with a validation yet.");
  }

  keys() {
    return [
      { key: "/", what: "Search", run: () => focusOn(this.node, ".search") },
      ...this.table.keys((row) => go(`/experiments/${row.id}`)),
      { key: "c", what: "Compare the selection", run: () => this.#compare() },
      {
        key: "p",
        what: "Pause the selection, or the row",
        run: () => {
          const rows = this.#selected();
          const row = this.table.rows[this.table.cursor];
          act("pause", rows.length ? rows : row ? [row] : [], () => this.load());
        },
      },
    ];
  }
}

/**
 * A column of dashes helps nobody.
 * @param {Api.ExperimentJson[]} rows
 * @param {string} key
 */
const mostlyKnown = (rows, key) =>
  rows.filter((row) => row.columns[key] !== null && row.columns[key] !== undefined).length > rows.length / 2;

/** What appears here, and the three ways to get there. */
const howToBegin = () =>
  empty(
    "No experiments yet.",
    "Whatever trains with this home appears here by itself.",
    h(
      "ol.begin",
      h("li", h("strong", "See it work, in a minute"), copyable("python -m determined.demo")),
      h(
        "li",
        h("strong", "Record a script of yours"),
        h(
          "span",
          "Any script with ",
          h("code", "pytorch.init()"),
          " or ",
          h("code", "core.init()"),
          ", unchanged:",
        ),
        copyable("python train.py"),
      ),
      h("li", h("strong", "Search for hyperparameters"), copyable("det experiment create config.yaml .")),
    ),
  );

/** @param {Place} place */
export const open = (place) => new Experiments(place).begin();
