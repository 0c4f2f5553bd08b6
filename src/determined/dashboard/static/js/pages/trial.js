// One trial: its head and its tabs.

import { get, path } from "../api.js";
import { h, hold } from "../dom.js";
import { count, duration, number } from "../format.js";
import { killTrial } from "../verbs.js";
import { forkTrial } from "../widgets/fork.js";
import { button, isOver, problem, progressBar, skeleton, stateBadge } from "../widgets/parts.js";
import { TabbedPage, tabBar } from "../widgets/tabs.js";
import { tensorboardButton } from "../widgets/tensorboard.js";
import { notThere } from "./lost.js";

/**
 * @import { TabList } from "../widgets/tabs.js"
 * @import { Place } from "../router.js"
 * @import { Change } from "../live.js"
 */

/** @type {TabList} */
const TABS = {
  overview: ["Overview", () => import("./trial/overview.js")],
  metrics: ["Metrics", () => import("./trial/metrics.js")],
  media: ["Media", () => import("./trial/media.js")],
  logs: ["Logs", () => import("./trial/logs.js")],
  checkpoints: ["Checkpoints", () => import("./checkpoints.js")],
  system: ["System", () => import("./trial/system.js")],
  profile: ["Profile", () => import("./trial/profile.js")],
};

export class TrialPage extends TabbedPage {
  /** @param {Place} place */
  constructor(place) {
    super(place, TABS);
    /** @type {Api.TrialDetail | null} */
    this.found = null;
  }

  get subject() {
    return this.found;
  }

  /** The tabs and the head are shown once it is here. */
  get trial() {
    return /** @type {Api.TrialDetail} */ (this.found);
  }

  get title() {
    return `Trial ${this.id}`;
  }

  async fetch() {
    this.found = await get(path("trials", this.id), {}, this.signal);
  }

  /** @param {Change} change */
  changed({ trials }) {
    if (trials?.includes(this.id)) this.refresh();
  }

  #head() {
    const { trial } = this;
    const { experiment } = trial;
    return h(
      "div.head",
      h(
        "div.what",
        h(
          "div.crumbs",
          h("a", { href: "/" }, "Experiments"),
          "/",
          h("a", { href: `/experiments/${experiment.id}` }, experiment.name),
          "/",
          h("a", { href: `/experiments/${experiment.id}/trials` }, "Trials"),
          "/",
          h("span", trial.id),
        ),
        h("h1", `Trial ${trial.id}`),
        h(
          "div.under",
          stateBadge(trial.state, trial.reason),
          progressBar(trial.progress, trial.state),
          h("span", `batch ${number(trial.steps)}`),
          h("span", duration(trial.duration)),
          trial.restarts ? h("span", count(trial.restarts, "restart")) : null,
          trial.decision ? h("span", trial.decision) : null,
        ),
      ),
      h(
        "div.bar",
        tensorboardButton({ trials: [trial.id] }),
        trial.steps ? button("Fork", () => forkTrial(trial)) : null,
        isOver(trial.state) || experiment.unmanaged
          ? null
          : button("Kill", () => killTrial(trial, () => this.load()), { kind: "danger" }),
      ),
    );
  }

  view() {
    if (!this.found) return this.error ? notThere(this.error, () => this.load()) : skeleton(6);
    return [
      this.error ? problem(this.error, () => this.load()) : null,
      this.#head(),
      tabBar(TABS, this.tabs.name, (name) => `/trials/${this.id}/${name}`),
      this.tabs.current ? hold(this.tabs.current.node) : skeleton(8),
    ];
  }
}

/** @param {Place} place */
export const open = (place) => new TrialPage(place).begin();
