// Any set of trials side by side: curves, what differs, configurations.

import { get } from "../api.js";
import { curveControls, curveOptions, everyBatch } from "../chart/controls.js";
import { look } from "../chart/palette.js";
import { seriesKey } from "../chart/series.js";
import { swatch } from "../chart/swatch.js";
import { h, hold, textIn } from "../dom.js";
import { count, isCounter, metricTitle, number, real, value } from "../format.js";
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
    this.grid = new ChartGrid({ height: 240, onpick: ({ href }) => href && go(href) });
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
    const metrics = this.found.metrics.filter((one) => !isCounter(one));
    this.#charts(trials, metrics);
    return [
      h("div.head", h("h1.what", `Compare ${count(trials.length, "trial")}`), form),
      this.#table(this.found),
      this.#config(this.found),
      h(
        "div.bar",
        curveControls(this.query, metrics, { batches: metrics.some((one) => one.batches) }),
        metrics.length > 24 ? h("span.muted", `24 of ${metrics.length} metrics`) : null,
      ),
      h(
        "ul.legend-row",
        { "aria-label": "Trials" },
        trials.map((trial, at) =>
          h(
            "li",
            { key: String(trial.id) },
            swatch(look(at)),
            h("a", { href: `/trials/${trial.id}` }, this.#name(trial)),
          ),
        ),
      ),
      metrics.length ? hold(this.grid.node) : empty("No metrics yet."),
    ];
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

  /**
   * @param {Api.CompareJson} found
   * @returns {{ kind: string, name: string, values: unknown[] }[]}
   */
  #rows({ trials, differs }) {
    /** @type {[string, unknown[]][]} */
    const facts = [
      ["State", trials.map((one) => one.state)],
      ["Best", trials.map((one) => real(one.best_validation))],
      ["Batches", trials.map((one) => one.steps)],
      ["Restarts", trials.map((one) => one.restarts)],
    ];
    return [
      ...facts.map(([name, values]) => ({ kind: "", name, values })),
      ...Object.entries(differs.hparams).map(([name, values]) => ({
        kind: "hyperparameter",
        name,
        values,
      })),
      ...Object.entries(differs.metrics)
        .filter(([name]) => !isCounter({ name: name.split(".").at(-1) }))
        .map(([name, values]) => ({ kind: "metric", name, values: values.map((it) => real(it) ?? it) })),
    ];
  }

  /** @param {Api.CompareJson} found */
  #table(found) {
    const { trials } = found;
    const rows = this.#rows(found);
    return card(
      "What differs",
      csvButton("compare", () => [
        ["", ...trials.map((one) => this.#name(one))],
        ...rows.map((row) => [row.name, ...row.values]),
      ]),
      h(
        "div.scroll-x",
        h(
          "table.plain.differs",
          h(
            "thead",
            h(
              "tr",
              h("td"),
              trials.map((one) =>
                h(
                  "th.number",
                  { scope: "col" },
                  h("a", { href: `/trials/${one.id}` }, this.#name(one)),
                  trials.length > 1
                    ? button(
                        "",
                        () => setQuery({ trials: this.ids.filter((id) => id !== String(one.id)).join(",") }),
                        { kind: "quiet small", title: `Remove trial ${one.id}`, picture: "close" },
                      )
                    : null,
                ),
              ),
            ),
          ),
          h(
            "tbody",
            rows.map((row) =>
              h(
                "tr",
                h("th", { scope: "row" }, row.name, row.kind ? h("span.kind", ` ${row.kind}`) : null),
                row.values.map((it) =>
                  h(
                    "td.number",
                    row.name === "State"
                      ? stateBadge(String(it))
                      : typeof it === "number"
                        ? number(it)
                        : value(it),
                  ),
                ),
              ),
            ),
          ),
        ),
      ),
    );
  }

  /** @param {Api.CompareJson} found */
  #config({ differs, trials }) {
    const rows = Object.entries(differs.config);
    if (!rows.length) return null;
    return card(
      "Configuration: what differs",
      csvButton("compare-configuration", () => [
        ["", ...trials.map((one) => this.#name(one))],
        ...rows.map(([name, values]) => [name, ...values]),
      ]),
      h(
        "div.scroll-x",
        h(
          "table.plain.differs",
          h(
            "thead",
            h(
              "tr",
              h("td"),
              trials.map((one) => h("th.number", { scope: "col" }, one.id)),
            ),
          ),
          h(
            "tbody",
            rows.map(([name, values]) =>
              h(
                "tr",
                h("th.mono", { scope: "row" }, name),
                values.map((it) => h("td.number.mono", { title: value(it) }, value(it))),
              ),
            ),
          ),
        ),
      ),
    );
  }
}

/** @param {Place} place */
export const open = (place) => new Compare(place).begin();
