// The rungs of a search: who got where, who was stopped and why.

import { get, path } from "../../api.js";
import { h, hold } from "../../dom.js";
import { clock, count, number, real } from "../../format.js";
import { Page } from "../../page.js";
import { button, card, empty, problem, skeleton } from "../../widgets/parts.js";
import { Table } from "../../widgets/table.js";

/**
 * @import { ExperimentPage } from "../experiment.js"
 * @import { Column } from "../../widgets/table.js"
 * @import { Place } from "../../router.js"
 * @import { Change } from "../../live.js"
 */

const MOST_STEPS = 200;
const MOST_MARKS = 60; // beyond, a bar says more than numbers

/** @typedef {Api.RungRow & { bracket: number, units: number }} Decision */

class Rungs extends Page {
  /**
   * @param {Place} place
   * @param {ExperimentPage} owner
   */
  constructor(place, owner) {
    super(place);
    this.owner = owner;
    /** @type {Api.RungsJson | null} */
    this.found = null;
    /** @type {Table<Decision>} */
    this.table = new Table({
      label: "Decisions",
      id: (row) => `${row.bracket}-${row.units}-${row.trial_id}`,
      height: "480px",
    });
  }

  load() {
    return this.ask(async () => {
      this.found = await get(path("experiments", this.owner.id, "rungs"), {}, this.signal);
    });
  }

  /** @param {Change} change */
  changed({ experiments }) {
    if (experiments?.includes(this.owner.id)) this.soon(() => this.load(), 1500);
  }

  view() {
    if (this.error) return problem(this.error, () => this.load());
    if (!this.found) return skeleton(8);
    const { method, metric, unit, brackets, steps } = this.found;
    if (!brackets.length && !steps.length)
      return empty("This search has no rungs.", `${method} trains every trial to the end.`);
    return [
      brackets.map((bracket) => this.#bracket(bracket, brackets.length, unit)),
      brackets.length ? this.#decisions(brackets, metric) : null,
      this.#steps(steps),
    ];
  }

  /**
   * @param {Api.BracketJson} bracket
   * @param {number} brackets
   * @param {string} unit
   */
  #bracket({ number: at, rungs }, brackets, unit) {
    const title = brackets > 1 ? `Bracket ${at}` : "Rungs";
    return card(
      title,
      h(
        "span.chips.muted",
        ["promoted", "stopped", "waiting", "completed", "failed"].map((one) =>
          h("span.mark", { "data-outcome": one }, one),
        ),
      ),
      h(
        "div.rungs",
        rungs.map((rung, i) =>
          h(
            "div.rung",
            h(
              "div",
              h("strong", number(rung.units)),
              h("span.muted", ` ${rung.units === 1 ? one(unit) : unit}`),
              h("div.muted", whoCame(rung, i === rungs.length - 1)),
            ),
            rung.seen > MOST_MARKS
              ? this.#share(rung, rungs[0].seen, i === rungs.length - 1)
              : h(
                  "div.who",
                  rung.rows.map((row) =>
                    h(
                      "a.mark",
                      { href: `/trials/${row.trial_id}`, "data-outcome": row.outcome, title: row.sentence },
                      row.trial_id,
                    ),
                  ),
                ),
          ),
        ),
      ),
    );
  }

  /**
   * How many got here, next to how many began, and how many of them went on.
   * @param {Api.RungJson} rung
   * @param {number} all
   * @param {boolean} isLast
   */
  #share({ seen, kept }, all, isLast) {
    /** @type {(n: number, outcome: string) => Ui.Child} */
    const part = (n, outcome) =>
      n
        ? h(
            "span.mark",
            { "data-outcome": outcome, style: { "flex-grow": String(n) }, title: `${number(n)} ${outcome}` },
            number(n),
          )
        : null;
    return h(
      "div.shares",
      { style: { width: `${Math.max(2, (seen / all) * 100)}%` } },
      isLast ? part(seen, "completed") : [part(kept, "promoted"), part(seen - kept, "stopped")],
    );
  }

  /**
   * @param {Api.BracketJson[]} brackets
   * @param {string | null} metric
   */
  #decisions(brackets, metric) {
    const rows = brackets.flatMap(({ number: bracket, rungs }) =>
      rungs.flatMap((rung) => rung.rows.map((row) => ({ ...row, bracket, units: rung.units }))),
    );
    /** @type {Column<Decision>} */
    const bracket = {
      key: "bracket",
      title: "Bracket",
      number: true,
      fit: true,
      cell: (row) => row.bracket,
      plain: (row) => row.bracket,
    };
    /** @type {Column<Decision>[]} */
    const columns = [
      ...(brackets.length > 1 ? [bracket] : []),
      {
        key: "units",
        title: "Rung",
        number: true,
        fit: true,
        cell: (row) => number(row.units),
        plain: (row) => row.units,
      },
      {
        key: "rank",
        title: "Rank",
        number: true,
        fit: true,
        cell: (row) => number(row.rank),
        plain: (row) => row.rank,
      },
      {
        key: "trial",
        title: "Trial",
        number: true,
        fit: true,
        cell: (row) => h("a", { href: `/trials/${row.trial_id}` }, row.trial_id),
        plain: (row) => row.trial_id,
      },
      {
        key: "metric",
        title: metric ?? "Metric",
        number: true,
        fit: true,
        cell: (row) => number(real(row.metric)),
        plain: (row) => row.metric,
      },
      {
        key: "outcome",
        title: "Outcome",
        cell: (row) => h("span.mark", { "data-outcome": row.outcome }, row.outcome),
        plain: (row) => row.outcome,
      },
      {
        key: "sentence",
        title: "Why",
        cell: (row) => row.sentence,
        plain: (row) => row.sentence,
        hover: (row) => row.sentence,
      },
    ];
    this.table.set({ rows, total: rows.length, columns: columns.map((one) => ({ ...one, sort: null })) });
    return card(
      "Decisions",
      button("CSV", () => this.table.export(`experiment-${this.owner.id}-rungs`), { kind: "quiet" }),
      hold(this.table.node),
    );
  }

  /** @param {Api.StepJson[]} steps */
  #steps(steps) {
    if (!steps.length) return null;
    return card(
      "Step by step",
      h(
        "span.muted",
        `${steps.length > MOST_STEPS ? `the last ${MOST_STEPS} of ` : ""}${count(steps.length, "step")}`,
      ),
      h(
        "ul.events.inside",
        steps
          .slice(0, MOST_STEPS)
          .map((one) =>
            h("li", h("time", one.time ? clock(Number(one.time)) : one.number), h("span", one.sentence)),
          ),
      ),
    );
  }
}

/**
 * epochs -> epoch, batches -> batch
 * @param {string} units
 */
const one = (units) => units.replace(/(?<=ch)es$|s$/, "");

/**
 * @param {Api.RungJson} rung
 * @param {boolean} isLast
 */
const whoCame = ({ seen, kept }, isLast) =>
  isLast
    ? `${count(seen, "trial")} came this far`
    : `${count(seen, "trial")} came here, ${number(kept)} went on`;

/**
 * @param {Place} place
 * @param {ExperimentPage} owner
 */
export const open = (place, owner) => new Rungs(place, owner).begin();
