// One experiment: its head and its tabs.

import { get, path, send } from "../api.js";
import { h, hold } from "../dom.js";
import { ago, count, duration, moment, percent } from "../format.js";
import { go } from "../router.js";
import { verbButtons } from "../verbs.js";
import { dialog, labelsOf, textField } from "../widgets/dialog.js";
import { button, problem, progressBar, skeleton, stateBadge } from "../widgets/parts.js";
import { TabbedPage, tabBar } from "../widgets/tabs.js";
import { tensorboardButton } from "../widgets/tensorboard.js";
import { tried } from "../widgets/toast.js";
import { notThere } from "./lost.js";

/**
 * @import { TabList } from "../widgets/tabs.js"
 * @import { Place } from "../router.js"
 * @import { Change } from "../live.js"
 */

/** @type {TabList} */
const TABS = {
  overview: ["Overview", () => import("./experiment/overview.js")],
  curves: ["Curves", () => import("./experiment/curves.js")],
  metrics: ["Metrics", () => import("./experiment/metrics.js")],
  trials: ["Trials", () => import("./experiment/trials.js")],
  search: ["Search", () => import("./experiment/search.js")],
  checkpoints: ["Checkpoints", () => import("./checkpoints.js")],
  code: ["Code", () => import("./experiment/code.js")],
  config: ["Configuration", () => import("./experiment/config.js")],
  logs: ["Logs", () => import("./experiment/logs.js")],
  notes: ["Notes", () => import("./experiment/notes.js")],
};

export class ExperimentPage extends TabbedPage {
  /** @param {Place} place */
  constructor(place) {
    super(place, TABS);
    /** @type {Api.ExperimentDetail | null} */
    this.found = null;
  }

  get subject() {
    return this.found;
  }

  /** The tabs and the head are shown once it is here. */
  get experiment() {
    return /** @type {Api.ExperimentDetail} */ (this.found);
  }

  get title() {
    return this.found ? `${this.found.name} (${this.id})` : `Experiment ${this.id}`;
  }

  async fetch() {
    this.found = await get(path("experiments", this.id), {}, this.signal);
  }

  /** @param {Change} change */
  changed({ experiments }) {
    if (experiments?.includes(this.id)) this.refresh();
  }

  async edit() {
    const { name, description, labels } = this.experiment;
    const answer = await dialog(
      "Edit experiment",
      [
        textField("name", "Name", { value: name }),
        textField("description", "Description", { value: description }),
        textField("labels", "Labels, with commas", { value: labels.join(", ") }),
      ],
      { ok: "Save" },
    );
    if (!answer) return;
    await this.change({
      ...answer,
      labels: labelsOf(answer.labels),
    });
  }

  /** @param {Api.Patch<`/api/experiments/${number}`>["body"]} changes */
  async change(changes) {
    await tried(() => send("PATCH", path("experiments", this.id), changes), "Saved.");
    await this.load();
  }

  #head() {
    const it = this.experiment;
    return h(
      "div.head",
      h(
        "div.what",
        h(
          "div.crumbs",
          h("a", { href: "/" }, "Experiments"),
          "/",
          it.project
            ? [
                h(
                  "a",
                  { href: `/?project=${it.project.id}` },
                  [...new Set([it.project.workspace, it.project.name])].filter(Boolean).join(" / "),
                ),
                "/",
              ]
            : null,
          h("span", it.id),
          it.parent_id
            ? h(
                "span",
                " from ",
                h("a", { href: `/experiments/${it.parent_id}` }, `experiment ${it.parent_id}`),
              )
            : null,
        ),
        h(
          "h1",
          it.name,
          " ",
          button("", () => this.edit(), {
            kind: "quiet",
            title: "Edit name, description and labels",
            picture: "edit",
          }),
        ),
        it.description ? h("p.muted", it.description) : null,
        h(
          "div.under",
          stateBadge(it.state, it.reason),
          progressBar(it.progress, it.state),
          h("span", percent(it.progress)),
          h("span", count(it.trials, "trial")),
          h("span", duration(it.duration)),
          h("span", { title: moment(it.created) }, `created ${ago(it.created)}`),
          it.archived ? h("span.chip", "archived") : null,
          it.unmanaged ? h("span.chip", "unmanaged") : null,
          it.labels.map((label) => h("a.chip", { href: `/?label=${encodeURIComponent(label)}` }, label)),
        ),
      ),
      h(
        "div.bar",
        it.trials ? tensorboardButton({ experiments: [it.id] }) : null,
        verbButtons([it], (verb) => (verb === "delete" ? go("/") : this.load())),
      ),
    );
  }

  view() {
    if (!this.found) return this.error ? notThere(this.error, () => this.load()) : skeleton(6);
    return [
      this.error ? problem(this.error, () => this.load()) : null,
      this.#head(),
      tabBar(TABS, this.tabs.name, (name) => `/experiments/${this.id}/${name}`),
      this.experiment.reason && this.experiment.state === "ERROR" && this.tabs.name !== "overview"
        ? h("div.problem", this.experiment.reason)
        : null,
      this.tabs.current ? hold(this.tabs.current.node) : skeleton(8),
    ];
  }
}

/** @param {Place} place */
export const open = (place) => new ExperimentPage(place).begin();
