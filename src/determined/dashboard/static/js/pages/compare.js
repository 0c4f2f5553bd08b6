// Any set of trials side by side: their curves, then what differs.

import { get } from "../api.js";
import { curveControls, curveOptions, everyBatch } from "../chart/controls.js";
import { look } from "../chart/palette.js";
import { seriesKey } from "../chart/series.js";
import { swatch } from "../chart/swatch.js";
import { h, hold, textIn } from "../dom.js";
import { count, finite, isCounter, metricTitle, number, real, searchedFirst, value } from "../format.js";
import { want } from "../live.js";
import { Page } from "../page.js";
import { go, setQuery } from "../router.js";
import { ChartGrid } from "../widgets/chart_grid.js";
import { button, card, csvButton, empty, problem, skeleton, stateBadge } from "../widgets/parts.js";

/**
 * @import { Place } from "../router.js"
 * @import { Change, Points } from "../live.js"
 */

class Compare extends Page {
  /** @param {Place} place */
  constructor(place) {
    super(place);
    this.grid = new ChartGrid({ height: 252, onpick: ({ href }) => href && go(href) });
    /** @type {Api.CompareJson | null} */
    this.found = null;
    /** @type {string | null} */
    this.asked = null;
  }

  get title() {
    return "Compare";
  }

  get ids() {
    return (this.query.trials ?? "").split(",").filter(Boolean);
  }

  close() {
    super.close();
    this.grid.close();
    want({});
  }

  load() {
    const { trials = "" } = this.query;
    if (!this.ids.length || this.asked === trials) return null;
    this.asked = trials;
    return this.ask(async () => {
      this.found = await get("/api/compare", { trials }, this.signal);
    });
  }

  /** @param {Change} change */
  changed({ trials }) {
    if (!trials?.some((id) => this.ids.includes(String(id)))) return;
    this.soon(() => {
      this.asked = null;
      this.load();
    }, 2000);
  }

  /** @param {Points} points */
  points(points) {
    this.grid.grow(points);
  }

  /** @param {Api.ComparedTrial} trial */
  #name(trial) {
    return `${trial.experiment_name} · ${trial.id}`;
  }

  view() {
    const form = h(
      "form.bar",
      {
        onsubmit: (event) => {
          event.preventDefault();
          setQuery({ trials: textIn(event.currentTarget, "trials").replace(/[^\d,]/g, "") });
        },
      },
      h(
        "label.labelled",
        "Trials",
        h("input.field.search", { name: "trials", value: this.query.trials ?? "", placeholder: "1, 2, 3" }),
      ),
      h("button.button", { type: "submit" }, "Compare"),
    );
    if (!this.ids.length)
      return [
        h("h1", "Compare"),
        form,
        empty("Nothing is selected.", "Select rows with x in any table, then press c."),
      ];
    if (this.error)
      return [
        h("h1", "Compare"),
        form,
        problem(this.error, () => {
          this.asked = null;
          this.load();
        }),
      ];
    if (!this.found) return [h("h1", "Compare"), form, skeleton(10)];
    const { trials } = this.found;
    const names = trials.map((one) => one.searcher.metric);
    const metrics = searchedFirst(
      this.found.metrics.filter((one) => !isCounter(one)),
      names,
    );
    this.#charts(trials, metrics);
    return [
      h("div.head", h("h1.what", `Compare ${count(trials.length, "trial")}`), form),
      this.#legend(trials),
      h(
        "div.bar",
        curveControls(this.query, metrics, { batches: metrics.some((one) => one.batches) }),
        metrics.length > 24 ? h("span.muted", `24 of ${metrics.length} metrics`) : null,
      ),
      metrics.length ? hold(this.grid.node) : empty("No metrics yet."),
      this.#table(this.found),
    ];
  }

  /** @param {Api.ComparedTrial[]} trials */
  #legend(trials) {
    return h(
      "ul.legend-row",
      { "aria-label": "Trials" },
      trials.map((trial, at) =>
        h(
          "li",
          { key: String(trial.id) },
          swatch(look(at)),
          h("a", { href: `/trials/${trial.id}` }, this.#name(trial)),
          trials.length > 1
            ? button(
                "",
                () => setQuery({ trials: this.ids.filter((id) => id !== String(trial.id)).join(",") }),
                { kind: "quiet small", title: `Remove trial ${trial.id}`, picture: "close" },
              )
            : null,
        ),
      ),
    );
  }

  /**
   * @param {Api.ComparedTrial[]} trials
   * @param {Api.MetricName[]} metrics
   */
  #charts(trials, metrics) {
    const shown = metrics.slice(0, 24);
    /** @type {(trial: Api.ComparedTrial, metric: Api.MetricName) => string} */
    const key = (trial, metric) => seriesKey(trial.id, metric, metric.batches && everyBatch(this.query));
    this.grid.set(
      shown.map((metric) => ({
        name: metricTitle(metric),
        lines: trials.map((trial, at) => ({
          key: key(trial, metric),
          name: this.#name(trial),
          href: `/trials/${trial.id}`,
          about: trial.hparams,
          at,
        })),
      })),
      curveOptions(this.query),
    );
    want({
      series: trials.flatMap((trial) => shown.slice(0, 8).map((metric) => key(trial, metric))).slice(0, 100),
    });
  }

  /** @param {Api.CompareJson} found */
  #table({ trials, differs }) {
    const sections = sectionsOf(trials, differs).filter((one) => one.rows.length);
    return card(
      "What differs",
      csvButton("compare", () => [
        ["", ...trials.map((one) => this.#name(one))],
        ...sections.flatMap(({ rows }) => rows.map((row) => [row.name, ...row.values])),
      ]),
      sections.length
        ? h(
            "div.scroll-x",
            { tabindex: 0, role: "region", "aria-label": "What differs, table" },
            h(
              "table.plain.differs",
              h(
                "thead",
                h(
                  "tr",
                  h("td"),
                  trials.map((one, at) =>
                    h(
                      "th.number",
                      { scope: "col", title: this.#name(one) },
                      swatch(look(at)),
                      h("a", { href: `/trials/${one.id}` }, this.#name(one)),
                    ),
                  ),
                ),
              ),
              sections.map((section) => this.#section(section, trials.length)),
            ),
          )
        : empty("Nothing: these trials are alike in everything that is shown here."),
    );
  }

  /**
   * @param {Section} section
   * @param {number} width
   */
  #section({ title, rows }, width) {
    return h(
      "tbody",
      { key: title },
      h("tr.section", h("th", { scope: "rowgroup", colspan: width + 1 }, title)),
      rows.map(({ name, values, best = [] }) =>
        h(
          "tr",
          h("th", { scope: "row" }, name),
          values.map((it, at) =>
            h(
              "td.number",
              { title: typeof it === "number" ? null : value(it) },
              name === "State"
                ? stateBadge(String(it))
                : best.includes(at)
                  ? h("span.best-mark", { title: "the best of these" }, "★ ", value(it))
                  : value(it),
            ),
          ),
        ),
      ),
    );
  }
}

/**
 * @typedef {{ name: string, values: unknown[], best?: number[] }} Row `best` are the places to mark
 * @typedef {{ title: string, rows: Row[] }} Section
 */

/**
 * What differs between trials, in the order in which one asks.
 * @param {Api.ComparedTrial[]} trials
 * @param {Api.DifferencesJson} differs
 * @returns {Section[]}
 */
export function sectionsOf(trials, differs) {
  const searchers = trials.map((one) => one.searcher);
  const shared = searchers.every((one) => one.metric === searchers[0].metric) ? searchers[0] : null;
  /** @type {Row[]} */
  const facts = [
    { name: "State", values: trials.map((one) => one.state) },
    {
      name: shared ? `best ${shared.metric}` : "best",
      values: trials.map(({ best_validation: best, searcher }) =>
        shared || best === null ? real(best) : `${searcher.metric} ${number(real(best))}`,
      ),
    },
    { name: "batches", values: trials.map((one) => one.steps) },
    { name: "restarts", values: trials.map((one) => one.restarts) },
  ];
  if (shared) facts[1].best = bestPlaces(facts[1].values, shared.smaller_is_better);
  const metrics = Object.entries(differs.metrics)
    .filter(([name]) => !isCounter({ name: name.split(".").at(-1) }))
    .map(([key, all]) => {
      const [group, ...rest] = key.split(".");
      const name = rest.join(".");
      const values = all.map((it) => real(it) ?? it);
      const judge = group === "validation" ? searchers.find((one) => one.metric === name) : undefined;
      const best = judge ? bestPlaces(values, judge.smaller_is_better) : [];
      return { name: metricTitle({ group, name }), values, best };
    });
  const rows = (/** @type {Record<string, unknown[]>} */ columns) =>
    Object.entries(columns).map(([name, values]) => ({ name, values }));
  return [
    { title: "Result", rows: facts.filter(({ values }) => new Set(values).size > 1) },
    { title: "Hyperparameters", rows: rows(differs.hparams) },
    { title: "Last metrics", rows: metrics },
    { title: "Configuration", rows: rows(differs.config) },
  ];
}

/**
 * Where the best values are; nowhere if there is nothing to choose between.
 * @param {unknown[]} values
 * @param {boolean} smallerIsBetter
 */
function bestPlaces(values, smallerIsBetter) {
  const known = values.map(finite).filter((it) => it !== null);
  if (new Set(known).size < 2) return [];
  const best = smallerIsBetter ? Math.min(...known) : Math.max(...known);
  return values.flatMap((it, at) => (it === best ? [at] : []));
}

/** @param {Place} place */
export const open = (place) => new Compare(place).begin();
