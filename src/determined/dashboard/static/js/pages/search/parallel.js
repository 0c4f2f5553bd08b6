// Parallel coordinates over a table: what is brushed above is listed below.

import { brushSentence, brushText, Parallel, passes, readBrushes } from "../../chart/parallel.js";
import { pictureButton } from "../../chart/picture.js";
import { h, hold } from "../../dom.js";
import { count, decoded, number, real, value } from "../../format.js";
import { Page } from "../../page.js";
import { go, setQuery } from "../../router.js";
import { button, empty, problem, skeleton, stateBadge } from "../../widgets/parts.js";
import { Table } from "../../widgets/table.js";
import { axesOf, byValue, fetchPoints, goodness, rampMarks } from "./points.js";

/**
 * @import { ExperimentPage } from "../experiment.js"
 * @import { Axis, Brushes } from "../../chart/parallel.js"
 * @import { Column } from "../../widgets/table.js"
 * @import { Place } from "../../router.js"
 * @import { Change } from "../../live.js"
 */

/**
 * @typedef {object} Row
 * @property {number} id
 * @property {string} state
 * @property {number} steps
 * @property {number | null} best
 * @property {Record<string, Api.Json>} hparams
 */

class ParallelView extends Page {
  /**
   * @param {Place} place
   * @param {ExperimentPage} owner
   */
  constructor(place, owner) {
    super(place);
    this.owner = owner;
    this.chart = new Parallel({
      onbrush: (brushes) => setQuery({ brush: brushText(brushes) }, { replace: true }),
      onorder: (names) => setQuery({ axes: namesText(names) }, { replace: true }),
      onflip: (names) => setQuery({ flip: namesText(names) }, { replace: true }),
    });
    /** @type {Api.PointsJson | null} */
    this.all = null;
    /** @type {Table<Row>} */
    this.table = new Table({
      label: "Trials that pass",
      id: (row) => row.id,
      height: "420px",
      onsort: (psort, porder) => setQuery({ psort, porder }, { replace: true }),
    });
  }

  close() {
    super.close();
    this.chart.close();
  }

  load() {
    return this.ask(async () => {
      this.all = this.all ?? (await fetchPoints(this.owner.id, this.signal));
    });
  }

  /** @param {Change} change */
  changed({ experiments }) {
    if (experiments?.includes(this.owner.id))
      this.soon(
        () =>
          this.ask(async () => {
            this.all = await fetchPoints(this.owner.id, this.signal);
          }),
        2000,
      );
  }

  view() {
    if (this.error) return problem(this.error, () => this.load());
    if (!this.all) return skeleton(12);
    const { experiment } = this.owner;
    const metric = experiment.searcher.metric ?? "best";
    const smaller = experiment.searcher.smaller_is_better;
    const axes = axesOf(this.all, experiment.hparams);
    if (!axes.length || this.all.ids.length < 2)
      return empty("Nothing to compare yet.", "This view shows trials whose hyperparameters differ.");
    axes.push({ name: "metric", title: metric, kind: "linear", values: this.all.values.map(real) });
    const wanted = readNames(this.query.axes);
    axes.sort((a, b) => placeIn(wanted, a.name) - placeIn(wanted, b.name));
    const brushes = readBrushes(this.query.brush);
    this.chart.set({
      axes,
      goodness: goodness(this.all.values, smaller),
      brushes,
      flipped: new Set(readNames(this.query.flip)),
      legend: rampMarks(this.all.values, smaller),
    });
    const rows = this.#rows(this.all, axes, brushes, smaller);
    return [
      h(
        "section.card",
        { "aria-label": "Parallel coordinates" },
        h(
          "header",
          h("h2", "Parallel coordinates"),
          h(
            "span.muted",
            Object.keys(brushes).length
              ? brushSentence(axes, brushes)
              : "Drag along an axis to filter trials, drag its name to move it. The stronger the color, the better.",
          ),
          Object.keys(brushes).length
            ? button("Clear", () => setQuery({ brush: "" }, { replace: true }), {
                kind: "quiet",
                picture: "close",
              })
            : null,
          pictureButton("parallel coordinates", this.chart),
        ),
        h("div.scroll-x", hold(this.chart.node)),
      ),
      h(
        "section.card",
        { "aria-label": "Trials" },
        h(
          "div.bar.table-tools",
          h(
            "span.count",
            rows.length === this.all.ids.length
              ? count(rows.length, "trial")
              : `${rows.length} of ${count(this.all.ids.length, "trial")}`,
          ),
          button("CSV", () => this.table.export(`experiment-${this.owner.id}-brushed`), { kind: "quiet" }),
        ),
        hold(this.table.node),
      ),
    ];
  }

  /**
   * @param {Api.PointsJson} all
   * @param {Axis[]} axes
   * @param {Brushes} brushes
   * @param {boolean} smaller
   */
  #rows(all, axes, brushes, smaller) {
    const own = axes.filter(({ name }) => name !== "metric");
    const { ids, states, steps, values, hparams } = all;
    const kept = ids.map((_, at) => at).filter((at) => axes.every((axis) => passes(axis, at, brushes)));
    /** @type {Row[]} */
    const rows = kept.map((at) => ({
      id: ids[at],
      state: states[at],
      steps: steps[at],
      best: real(values[at]),
      hparams: Object.fromEntries(own.map(({ name }) => [name, hparams[name][at]])),
    }));
    const sort = this.query.psort ?? "best";
    const order = this.query.porder ?? (smaller ? "asc" : "desc");
    /** @param {Row} row */
    const of = (row) =>
      sort.startsWith("hparam:") ? row.hparams[sort.slice(7)] : new Map(Object.entries(row)).get(sort);
    rows.sort((a, b) => byValue(of(a), of(b), order === "asc" ? 1 : -1));
    /** @type {Column<Row>[]} */
    const columns = [
      {
        key: "id",
        title: "Trial",
        number: true,
        fit: true,
        cell: (row) => h("a", { href: `/trials/${row.id}` }, row.id),
        plain: (row) => row.id,
      },
      { key: "state", title: "State", cell: (row) => stateBadge(row.state), plain: (row) => row.state },
      {
        key: "best",
        title: this.owner.experiment.searcher.metric ?? "Best",
        number: true,
        cell: (row) => number(row.best),
        plain: (row) => row.best,
      },
      {
        key: "steps",
        title: "Batches",
        number: true,
        cell: (row) => number(row.steps),
        plain: (row) => row.steps,
      },
      ...own.map(({ name }) => ({
        key: `hparam:${name}`,
        title: name,
        number: true,
        cell: (/** @type {Row} */ row) => value(row.hparams[name]),
        plain: (/** @type {Row} */ row) => row.hparams[name],
      })),
    ];
    this.table.set({
      columns,
      rows,
      total: rows.length,
      sort: { key: sort, order },
      empty: () => empty("No trial matches all of these ranges."),
    });
    return rows;
  }

  keys() {
    return this.table.keys((row) => go(`/trials/${row.id}`));
  }
}

/**
 * Names in the address; those that it does not list keep their order, at the end.
 * @param {string[]} names
 */
const namesText = (names) => names.map(encodeURIComponent).join(",");
/** @param {string | undefined} text */
const readNames = (text) => (text ?? "").split(",").filter(Boolean).map(decoded);
/**
 * @param {string[]} names
 * @param {string} name
 */
const placeIn = (names, name) => (names.includes(name) ? names.indexOf(name) : names.length);

/**
 * @param {Place} place
 * @param {ExperimentPage} owner
 */
export const open = (place, owner) => new ParallelView(place, owner).begin();
