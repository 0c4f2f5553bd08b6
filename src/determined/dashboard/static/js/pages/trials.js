// All trials of a project, or of all projects, in one table: filter, sort, compare.

import { get, query as toQuery } from "../api.js";
import { focusOn, h, hold } from "../dom.js";
import { count, goal } from "../format.js";
import { Page } from "../page.js";
import { go, setQuery } from "../router.js";
import { openPicker } from "../widgets/menu.js";
import { Paged } from "../widgets/paged.js";
import { BEST_ORDER, bestValue, button, empty, problem, select, skeleton } from "../widgets/parts.js";
import { Table } from "../widgets/table.js";
import { toast } from "../widgets/toast.js";
import { shownColumns, TRIAL_STATES, trialColumns } from "../widgets/trial_columns.js";

/**
 * @import { Column } from "../widgets/table.js"
 * @import { Place } from "../router.js"
 * @import { Change } from "../live.js"
 */

const FILTERS = /** @type {const} */ (["project", "search", "metric", "state", "hparams", "sort", "order"]);
const MOST_HPARAMS = 6; // of those that differ, unless columns are chosen

class AllTrials extends Page {
  /** @param {Place} place */
  constructor(place) {
    super(place);
    /** @type {Api.ColumnJson[]} */
    this.available = [];
    /** @type {Api.ProjectJson[]} */
    this.projects = [];
    this.typing = 0;
    this.paged = new Paged(
      async (offset, limit) => {
        const answer = await get("/api/trials", { ...this.#filters(), offset, limit }, this.signal);
        this.available = answer.columns.available;
        return answer;
      },
      () => this.draw(),
    );
    /** @type {Table<Api.OwnedTrial>} */
    this.table = new Table({
      label: "Trials",
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

  get title() {
    return "Trials";
  }

  #filters() {
    const chosen = /** @type {{ [Name in (typeof FILTERS)[number]]?: string }} */ (
      Object.fromEntries(FILTERS.map((name) => [name, this.query[name]]))
    );
    return { ...chosen, archived: this.query.archived === "1" ? "" : "0" };
  }

  load() {
    return this.ask(() => this.paged.reset());
  }

  /** @param {Change} change */
  changed({ trials }) {
    if (!trials?.length) return;
    const at = this.table.scroller.scrollTop / 32;
    this.soon(() => this.ask(() => this.paged.refresh(Math.max(0, at - 10), at + 50)), 1000);
  }

  /** @returns {Column<Api.OwnedTrial>[]} */
  #allColumns() {
    const named = this.available.map(({ label, differs }) => ({ name: label, differs }));
    const shared = trialColumns(named, { metric: null, smaller_is_better: false }, null);
    /** @type {Column<Api.OwnedTrial>} */
    const experiment = {
      key: "experiment",
      title: "Experiment",
      always: true,
      first: "asc",
      cell: (row) =>
        h("span.name", h("a", { href: `/experiments/${row.experiment_id}` }, row.experiment_name)),
      plain: (row) => row.experiment_name,
      hover: (row) => row.experiment_name,
    };
    /** @type {Column<Api.OwnedTrial>} */
    const best = {
      key: "best",
      title: "Best",
      number: true,
      about: BEST_ORDER,
      cell: (row) => bestValue(row.best_validation, row.searcher.metric),
      plain: (row) => row.best_validation,
      hover: (row) => goal(row.searcher),
    };
    const rest = shared.filter(({ key }) => !["id", "state", "best", "rung"].includes(key));
    const of = (/** @type {string} */ key) => shared.filter((one) => one.key === key);
    return [...of("id"), experiment, ...of("state"), best, ...rest];
  }

  /** @param {Column<Api.OwnedTrial>[]} all */
  #columns(all) {
    const differing = this.available.filter((one) => one.differs).slice(0, MOST_HPARAMS);
    const wanted = new Set(differing.map((one) => one.key));
    const usual = all.filter((one) => one.kind !== "hyperparameter" || wanted.has(one.key));
    return shownColumns(this.query.columns ? all : usual, this.paged.loaded, this.query.columns);
  }

  view() {
    const all = this.#allColumns();
    const columns = this.#columns(all);
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
            ? empty("No trials match these filters.", h("a", { href: "/trials" }, "Show all"))
            : empty("No trials yet.", h("a", { href: "/" }, "How to begin")),
    });
    return [
      h("h1.hidden-text", "Trials"),
      this.error ? problem(this.error, () => this.load()) : null,
      h("section.card", { "aria-label": "Trials" }, this.#tools(all, columns), hold(this.table.node)),
      this.#selectionBar(),
    ];
  }

  /**
   * A field whose text is in the address as soon as one stops typing.
   * @param {"search" | "hparams"} name
   * @param {string} placeholder
   * @param {string} label
   */
  #field(name, placeholder, label) {
    return h("input.field.search", {
      type: "search",
      name,
      placeholder,
      "aria-label": label,
      value: this.query[name] ?? "",
      oninput: (event) => {
        const text = event.currentTarget.value;
        clearTimeout(this.typing);
        this.typing = setTimeout(() => setQuery({ [name]: text }, { replace: true }), 250);
      },
    });
  }

  /**
   * @param {Column<Api.OwnedTrial>[]} all
   * @param {Column<Api.OwnedTrial>[]} columns
   */
  #tools(all, columns) {
    const { query } = this;
    return h(
      "div.bar.table-tools",
      this.#field("search", "Search experiments", "Search experiments"),
      this.#field("hparams", "lr<0.01; optimizer=adam", "Conditions on hyperparameters"),
      select(
        "State",
        [
          { value: "", text: "All states" },
          ...TRIAL_STATES.map((state) => ({ value: state, text: state.toLowerCase() })),
        ],
        query.state ?? "",
        (state) => setQuery({ state }),
        { hideLabel: true },
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
      h("span.count", { "aria-live": "polite" }, this.paged.known ? count(this.paged.total, "trial") : ""),
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
        { href: `/api/export/all-trials.csv?${toQuery(this.#filters())}`, download: "trials.csv" },
        "CSV",
      ),
    );
  }

  #selectionBar() {
    const chosen = this.table.selected.size;
    if (!chosen) return null;
    return h(
      "div.selection",
      { role: "toolbar", "aria-label": "Selected trials" },
      h("strong", `${chosen} selected`),
      button("Compare", () => this.#compare(), { kind: "main" }),
      button("", () => this.table.clearSelection(), {
        kind: "quiet",
        title: "Clear the selection",
        picture: "close",
      }),
    );
  }

  #compare() {
    if (this.table.selected.size) go(`/compare?trials=${[...this.table.selected].join(",")}`);
    else toast("Select trials with x first.");
  }

  keys() {
    return [
      { key: "/", what: "Search", run: () => focusOn(this.node, ".search") },
      ...this.table.keys((row) => go(`/trials/${row.id}`)),
      { key: "c", what: "Compare the selection", run: () => this.#compare() },
    ];
  }
}

/** @param {Place} place */
export const open = (place) => new AllTrials(place).begin();
