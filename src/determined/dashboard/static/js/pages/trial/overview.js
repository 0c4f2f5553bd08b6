// A trial at a glance: its values, its runs and restarts, and what went wrong.

import { h } from "../../dom.js";
import { duration, measuredFirst, moment, number, real, value } from "../../format.js";
import { Page } from "../../page.js";
import { errorCard } from "../../widgets/error.js";
import { lineageCard } from "../../widgets/fork.js";
import { card, copyable, csvButton, empty, facts, isOver, stateBadge } from "../../widgets/parts.js";

/**
 * @import { TrialPage } from "../trial.js"
 * @import { Place } from "../../router.js"
 */

class Overview extends Page {
  /**
   * @param {Place} place
   * @param {TrialPage} owner
   */
  constructor(place, owner) {
    super(place);
    this.owner = owner;
  }

  /** @param {Place} place */
  moved(place) {
    this.place = place;
  }

  view() {
    const { trial } = this.owner;
    return [
      trial.error ? errorCard("The first error", trial.error) : null,
      h(
        "div.columns",
        h(
          "div.stack",
          card(
            "Result",
            null,
            h(
              "div.inside.stack",
              this.#best(trial),
              facts([
                [
                  "Latest",
                  trial.latest_validation === null
                    ? null
                    : `${number(real(trial.latest_validation), 6)} at batch ${number(trial.latest_steps)}`,
                ],
                ["Started", trial.started && moment(trial.started)],
                ["Ended", trial.ended && moment(trial.ended)],
                ["Duration", duration(trial.duration)],
                ["Reason", trial.reason],
                ["Rung", trial.rung],
                ["Search", trial.decision === trial.reason ? null : trial.decision],
              ]),
              trial.load
                ? h(
                    "div",
                    h(
                      "div.muted",
                      trial.best_checkpoint
                        ? "Load its best checkpoint in Python"
                        : "Load its latest checkpoint in Python (its best was not kept)",
                    ),
                    copyable(trial.load),
                  )
                : null,
            ),
          ),
          lineageCard(trial),
          card(
            "Hyperparameters",
            null,
            Object.keys(trial.hparams).length
              ? h(
                  "div.inside",
                  facts(
                    Object.entries(trial.hparams).map(([name, it]) => [
                      h("span.mono", name),
                      h("span.mono", value(it)),
                    ]),
                  ),
                )
              : empty("None."),
          ),
        ),
        h("div.stack", this.#metrics(trial)),
      ),
      this.#runs(trial),
    ];
  }

  /** @param {Api.TrialDetail} trial */
  #best({ best_validation: best, best_steps: steps, state, experiment }) {
    const metric = experiment.searcher.metric ?? "validation";
    if (best === null)
      return h("div.muted", isOver(state) ? `It ended before its first ${metric}.` : `No ${metric} yet.`);
    return h(
      "div",
      h("div.big-number", number(real(best), 6)),
      h("span.muted", `best ${metric}${steps === null ? "" : ` at batch ${number(steps)}`}`),
    );
  }

  /** @param {Api.TrialDetail} trial */
  #metrics({ metrics, id, state }) {
    if (!metrics.length)
      return card("Metrics", null, empty(isOver(state) ? "It reported no metrics." : "No metrics yet."));
    return card(
      "Metrics",
      [
        h("a", { href: `/trials/${id}/metrics` }, "Curves"),
        csvButton(`trial-${id}-metrics`, () => [
          ["group", "name", "last", "min", "max", "count"],
          ...metrics.map((one) => [one.group, one.name, one.last, one.min, one.max, one.count]),
        ]),
      ],
      h(
        "div.scroll-x",
        h(
          "table.plain",
          h(
            "thead",
            h(
              "tr",
              h("th", { scope: "col" }, "Metric"),
              ["Last", "Least", "Greatest", "Points"].map((text) => h("th.number", { scope: "col" }, text)),
            ),
          ),
          h(
            "tbody",
            measuredFirst(metrics)
              .slice(0, 60)
              .map((one) =>
                h(
                  "tr",
                  h("td", h("span.muted", `${one.group} `), one.name),
                  [one.last, one.min, one.max].map((it) => h("td.number", number(real(it)))),
                  h("td.number", number(one.count)),
                ),
              ),
          ),
        ),
      ),
    );
  }

  /** @param {Api.TrialDetail} trial */
  #runs({ id, run_list: runs }) {
    if (!runs.length) return card("Runs", null, empty("It has not run yet."));
    const columns = [
      "Run",
      "State",
      "Started",
      "Duration",
      "From batch",
      "Exit",
      "From checkpoint",
      "Where",
      "Reason",
      "Environment",
    ];
    return card(
      "Runs and restarts",
      csvButton(`trial-${id}-runs`, () => [
        [
          "run",
          "state",
          "created",
          "started",
          "ended",
          "from_batch",
          "exit",
          "checkpoint",
          "host",
          "slots",
          "reason",
          "environment",
        ],
        ...runs.map((one) => [
          ...[one.run_id, one.state, one.created, one.started, one.ended, one.steps_completed, one.exit_code],
          ...[one.from_checkpoint, one.host, one.slots, one.reason, one.environment],
        ]),
      ]),
      h(
        "div.scroll-x",
        h(
          "table.plain",
          h(
            "thead",
            h(
              "tr",
              columns.map((text) => h("th", { scope: "col" }, text)),
            ),
          ),
          h(
            "tbody",
            runs.map((one) =>
              h(
                "tr",
                h("td", one.run_id),
                h("td", stateBadge(one.state)),
                h("td", moment(one.started ?? one.created)),
                h("td", one.ended ? duration(Number(one.ended) - Number(one.started ?? one.created)) : "–"),
                h("td", number(one.steps_completed)),
                h("td", one.exit_code ?? "–"),
                h("td.mono", one.from_checkpoint ? one.from_checkpoint.slice(0, 8) : "–"),
                h(
                  "td",
                  [one.host, one.slots.length ? `slots ${one.slots.join(", ")}` : ""]
                    .filter(Boolean)
                    .join(", "),
                ),
                h("td", { title: one.reason }, one.reason || "–"),
                h(
                  "td.environment",
                  one.environment || "–",
                  one.differences.map((text) => h("div.note", `Not as before: ${text}`)),
                ),
              ),
            ),
          ),
        ),
      ),
    );
  }
}

/**
 * @param {Place} place
 * @param {TrialPage} owner
 */
export const open = (place, owner) => new Overview(place, owner).begin();
