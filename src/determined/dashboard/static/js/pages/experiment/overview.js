// What one asks first: how far, how good, with what, at what cost.

import { CurveChart } from "../../chart/curves.js";
import { seriesKey } from "../../chart/series.js";
import { h, hold } from "../../dom.js";
import { bytes, duration, goal, moment, number, real, value } from "../../format.js";
import { want } from "../../live.js";
import { Page } from "../../page.js";
import { go } from "../../router.js";
import { errorCard } from "../../widgets/error.js";
import { card, copyable, empty, facts, stateBadge } from "../../widgets/parts.js";

/**
 * @import { ExperimentPage } from "../experiment.js"
 * @import { Place } from "../../router.js"
 * @import { Points } from "../../live.js"
 */

class Overview extends Page {
  /**
   * @param {Place} place
   * @param {ExperimentPage} owner
   */
  constructor(place, owner) {
    super(place);
    this.owner = owner;
    /** @type {CurveChart | null} */
    this.chart = null;
    /** @type {number | null} */
    this.charted = null;
  }

  close() {
    super.close();
    this.chart?.close();
    want({});
  }

  /** @param {Place} place */
  moved(place) {
    this.place = place;
    this.draw();
  }

  #showCurve() {
    const { experiment } = this.owner;
    const metric = experiment.searcher.metric;
    const trial = experiment.best_trial_id;
    if (!trial || !metric || trial === this.charted) return;
    this.charted = trial;
    this.chart ??= new CurveChart({
      title: metric,
      height: 240,
      legend: false,
      onpick: () => go(`/trials/${trial}`),
    });
    const key = seriesKey(trial, { group: "validation", name: metric });
    this.chart.set({
      title: `${metric} of trial ${trial}`,
      lines: [{ key, name: `Trial ${trial}`, about: experiment.best?.hparams }],
      options: {},
    });
    want({ series: [key] });
  }

  /** @param {Points} points */
  points(points) {
    this.chart?.grow(points);
  }

  view() {
    const it = this.owner.experiment;
    this.#showCurve();
    return [
      it.error ? this.#error(it, it.error) : null,
      h(
        "div.columns",
        h("div.stack", this.#best(it), this.chart ? hold(this.chart.node) : null),
        h("div.stack", this.#about(it), this.#events(it)),
      ),
    ];
  }

  /**
   * @param {Api.ExperimentDetail} experiment
   * @param {Api.ErrorJson} error
   */
  #error({ reason }, error) {
    const link = h("a", { href: `/trials/${error.trial_id}` }, `Trial ${error.trial_id}`);
    return errorCard(reason ? `Failed: ${reason}` : "Failed", error, link);
  }

  /** @param {Api.ExperimentDetail} experiment */
  #best({ best, searcher, metrics }) {
    const names = metrics.filter((it) => it.group === "validation").map((it) => it.name);
    if (!best && searcher.metric && names.length && !names.includes(searcher.metric))
      return card(
        "Best trial",
        null,
        empty(
          `No validation has ${searcher.metric}, the metric of the search.`,
          `Reported instead: ${names.join(", ")}.`,
        ),
      );
    if (!best)
      return card(
        "Best trial",
        null,
        empty(
          "No trial has validated yet.",
          searcher.metric ? `The best one will be chosen by ${searcher.metric}.` : null,
        ),
      );
    return card(
      "Best trial",
      h("a", { href: `/trials/${best.trial_id}` }, `Trial ${best.trial_id}`),
      h(
        "div.inside.stack",
        h(
          "div",
          h("div.big-number", number(real(best.value), 6)),
          h("span.muted", `${best.metric} at batch ${number(best.steps)}`),
        ),
        facts(
          Object.entries(best.hparams)
            .slice(0, 24)
            .map(([name, it]) => [h("span.mono", name), h("span.mono", value(it))]),
        ),
        best.load ? h("div", h("div.muted", "Load it in Python"), copyable(best.load)) : null,
      ),
    );
  }

  /** @param {Api.ExperimentDetail} it */
  #about(it) {
    return card(
      "About",
      null,
      h(
        "div.inside",
        facts([
          [
            "Trials",
            h(
              "span.bar",
              Object.entries(it.states).map(([state, n]) => h("span.nowrap", `${n} `, stateBadge(state))),
            ),
          ],
          ["Searcher", [it.searcher.name, goal(it.searcher)].filter(Boolean).join(", ")],
          ["Created", moment(it.created)],
          ["Started", it.started && moment(it.started)],
          ["Ended", it.ended && moment(it.ended)],
          ["Duration", duration(it.duration)],
          ["Slot time", duration(it.slot_seconds)],
          [
            "Checkpoints",
            it.checkpoint_count ? `${it.checkpoint_count}, ${bytes(it.checkpoint_size)}` : "none",
          ],
          ["Owner", it.owner],
          ["Python", value(it.environment.python ?? "")],
        ]),
      ),
    );
  }

  /** @param {Api.ExperimentDetail} experiment */
  #events({ events }) {
    if (!events.length) return null;
    return card(
      "What happened",
      null,
      h(
        "ul.events.inside",
        events
          .slice(0, 30)
          .map((one) =>
            h(
              "li",
              h("time", moment(one.time)),
              h(
                one.level === "ERROR" ? "span.danger-text" : "span",
                one.trial_id
                  ? [h("a", { href: `/trials/${one.trial_id}` }, `Trial ${one.trial_id}`), ": "]
                  : null,
                one.text,
              ),
            ),
          ),
      ),
    );
  }
}

/**
 * @param {Place} place
 * @param {ExperimentPage} owner
 */
export const open = (place, owner) => new Overview(place, owner).begin();
