// Checkpoints of an experiment or of one trial.

import { get, path } from "../api.js";
import { h, hold } from "../dom.js";
import { ago, bytes, count, moment, number, real } from "../format.js";
import { Page } from "../page.js";
import { dialog } from "../widgets/dialog.js";
import { Paged } from "../widgets/paged.js";
import { button, copy, copyable, empty, facts, problem, skeleton, stateBadge } from "../widgets/parts.js";
import { register } from "../widgets/register.js";
import { Table } from "../widgets/table.js";

/**
 * @import { ExperimentPage } from "./experiment.js"
 * @import { TrialPage } from "./trial.js"
 * @import { Column } from "../widgets/table.js"
 * @import { Place } from "../router.js"
 * @import { Change } from "../live.js"
 */

const READABLE = ["COMPLETED", "PARTIALLY_DELETED"];
const COPY = "Copy the Python code that loads it";

class Checkpoints extends Page {
  /**
   * @param {Place} place
   * @param {ExperimentPage | TrialPage} owner
   */
  constructor(place, owner) {
    super(place);
    this.owner = owner;
    this.kind = /** @type {"trials" | "experiments"} */ ("trial" in owner ? "trials" : "experiments");
    this.paged = new Paged(
      (offset, limit) => get(path(this.kind, owner.id, "checkpoints"), { offset, limit }, this.signal),
      () => this.draw(),
    );
    /** @type {Table<Api.CheckpointJson>} */
    this.table = new Table({
      label: "Checkpoints",
      id: (row) => row.uuid,
      height: "calc(100vh - 300px)",
      onneed: (first, last) => this.paged.known && this.paged.need(first, last),
    });
  }

  load() {
    return this.ask(() => this.paged.reset());
  }

  /** @param {Change} change */
  changed(change) {
    if (change[this.kind]?.includes(this.owner.id))
      this.soon(() => this.ask(() => this.paged.refresh(0, 50)), 2000);
  }

  /** @returns {Column<Api.CheckpointJson>[]} */
  #columns() {
    /** @type {Column<Api.CheckpointJson>} */
    const trial = {
      key: "trial",
      title: "Trial",
      number: true,
      cell: (row) => h("a", { href: `/trials/${row.trial_id}` }, row.trial_id),
      plain: (row) => row.trial_id,
    };
    /** @type {Column<Api.CheckpointJson>[]} */
    const columns = [
      {
        key: "uuid",
        title: "Checkpoint",
        cell: (row) =>
          h(
            "a.mono",
            {
              href: "#",
              onclick: (event) => {
                event.preventDefault();
                this.#show(row);
              },
            },
            row.uuid.slice(0, 8),
          ),
        plain: (row) => row.uuid,
        hover: (row) => row.uuid,
      },
      ...(this.kind === "experiments" ? [trial] : []),
      {
        key: "steps",
        title: "Batches",
        number: true,
        cell: (row) => number(row.steps),
        plain: (row) => row.steps,
      },
      {
        key: "metric",
        title: "Metric",
        number: true,
        cell: (row) => number(real(row.metric)),
        plain: (row) => row.metric,
      },
      { key: "size", title: "Size", number: true, cell: (row) => bytes(row.size), plain: (row) => row.size },
      { key: "state", title: "State", cell: (row) => stateBadge(row.state), plain: (row) => row.state },
      {
        key: "time",
        title: "Saved",
        cell: (row) => ago(row.time),
        plain: (row) => moment(row.time),
        hover: (row) => moment(row.time),
      },
      {
        key: "registered",
        title: "Registered as",
        cell: (row) =>
          row.registered.map((one) =>
            h("a.chip", { href: `/models/${encodeURIComponent(one.model)}` }, `${one.model} v${one.version}`),
          ),
        plain: (row) => row.registered.map((one) => `${one.model} v${one.version}`).join(" "),
      },
      {
        key: "do",
        title: "Actions",
        cell: (row) =>
          READABLE.includes(row.state)
            ? h(
                "span.acts",
                h("a", { href: `/api/checkpoints/${row.uuid}/download`, download: "" }, "Download"),
                row.load ? button("Copy code", () => copy(row.load), { kind: "link", title: COPY }) : null,
                row.state === "COMPLETED"
                  ? button("Register", () => register(row.uuid, () => this.load()), { kind: "link" })
                  : null,
              )
            : "",
        plain: () => "",
      },
    ];
    return columns.map((one) => ({ ...one, sort: null }));
  }

  view() {
    this.table.set({
      columns: this.#columns(),
      rows: this.paged.rows,
      total: this.paged.total,
      empty: () =>
        !this.paged.known
          ? this.error
            ? null
            : skeleton(6)
          : empty("No checkpoints.", "They appear when a trial saves one."),
    });
    const size = this.paged.loaded.reduce((sum, row) => sum + row.size, 0);
    return [
      this.error ? problem(this.error, () => this.load()) : null,
      h(
        "section.card",
        { "aria-label": "Checkpoints" },
        h(
          "div.bar.table-tools",
          h("span.count", this.paged.known ? `${count(this.paged.total, "checkpoint")}, ${bytes(size)}` : ""),
          button("CSV", () => this.table.export(`${this.kind}-${this.owner.id}-checkpoints`), {
            kind: "quiet",
          }),
        ),
        hold(this.table.node),
      ),
    ];
  }

  keys() {
    return this.table.keys((row) => this.#show(row));
  }

  /** @param {Api.CheckpointJson} row */
  async #show(row) {
    const answer = await showCheckpoint(row);
    if (answer && row.state === "COMPLETED") register(row.uuid, () => this.load());
  }
}

/** @param {Api.CheckpointJson} row */
function showCheckpoint(row) {
  const files = Object.entries(row.files);
  return dialog(
    `Checkpoint ${row.uuid.slice(0, 8)}`,
    [
      facts([
        ["UUID", h("span.mono", row.uuid)],
        ["Batches", number(row.steps)],
        ["Storage", h("span.mono", row.storage)],
        ["Saved", moment(row.time)],
      ]),
      row.load ? copyable(row.load) : null,
      h(
        "div.scroll-x",
        h(
          "table.plain",
          h("thead", h("tr", h("th", { scope: "col" }, "File"), h("th.number", { scope: "col" }, "Size"))),
          h(
            "tbody",
            files
              .slice(0, 200)
              .map(([name, size]) => h("tr", h("td.mono", name), h("td.number", bytes(size)))),
          ),
        ),
      ),
    ],
    row.state === "COMPLETED" ? { ok: "Register …", cancel: "Close" } : { ok: "Close", cancel: null },
  );
}

/**
 * @param {Place} place
 * @param {ExperimentPage | TrialPage} owner
 */
export const open = (place, owner) => new Checkpoints(place, owner).begin();
