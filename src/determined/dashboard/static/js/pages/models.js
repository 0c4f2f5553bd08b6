// The model registry: names for checkpoints that are worth keeping.

import { get, send } from "../api.js";
import { h, hold } from "../dom.js";
import { ago, byLatest, count, moment } from "../format.js";
import { Page } from "../page.js";
import { go, setQuery } from "../router.js";
import { dialog, labelsOf, textField } from "../widgets/dialog.js";
import { button, empty, problem, skeleton } from "../widgets/parts.js";
import { Table } from "../widgets/table.js";
import { tried } from "../widgets/toast.js";

/**
 * @import { Place } from "../router.js"
 * @import { Column } from "../widgets/table.js"
 */

/** @type {Column<Api.ModelJson>[]} */
const ALL = [
  {
    key: "name",
    title: "Model",
    cell: (row) =>
      h(
        "span.name",
        h("a", { href: hrefOf(row.name) }, row.name),
        row.archived ? h("span.chip", "archived") : null,
        row.labels.map((label) => h("span.chip", label)),
      ),
    plain: (row) => row.name,
  },
  {
    key: "description",
    title: "Description",
    cell: (row) => row.description,
    plain: (row) => row.description,
    hover: (row) => row.description,
  },
  {
    key: "versions",
    title: "Versions",
    number: true,
    cell: (row) => row.num_versions,
    plain: (row) => row.num_versions,
  },
  { key: "workspace", title: "Workspace", cell: (row) => row.workspace, plain: (row) => row.workspace },
  { key: "owner", title: "Owner", cell: (row) => row.owner, plain: (row) => row.owner },
  {
    key: "updated",
    title: "Updated",
    cell: (row) => ago(row.updated),
    plain: (row) => moment(row.updated),
    hover: (row) => moment(row.updated),
  },
];
const COLUMNS = ALL.map((one) => ({ ...one, sort: null }));

/** @param {string} name */
const hrefOf = (name) => `/models/${encodeURIComponent(name)}`;

class Models extends Page {
  /** @param {Place} place */
  constructor(place) {
    super(place);
    /** @type {Api.ModelJson[] | null} */
    this.found = null;
    /** @type {Table<Api.ModelJson>} */
    this.table = new Table({ label: "Models", id: (row) => row.name, height: "calc(100vh - 180px)" });
  }

  get title() {
    return "Models";
  }

  load() {
    return this.ask(async () => {
      this.found = (await get("/api/models", {}, this.signal)).rows;
    });
  }

  async #create() {
    const fields = [
      textField("name", "Name", { required: true, maxlength: 255, autocomplete: "off" }),
      textField("description", "Description"),
      textField("labels", "Labels, with commas"),
    ];
    const answer = await dialog("New model", fields, { ok: "Create" });
    if (!answer) return;
    const body = {
      name: answer.name.trim(),
      description: answer.description,
      labels: labelsOf(answer.labels),
    };
    const made = await tried(() => send("POST", "/api/models", body), "Created.");
    if (made) go(hrefOf(made.model));
  }

  view() {
    if (this.error) return problem(this.error, () => this.load());
    if (!this.found) return skeleton(8);
    const showsArchived = this.query.archived === "1";
    const rows = this.found.filter((one) => showsArchived || !one.archived);
    rows.sort(byLatest);
    this.table.set({
      rows,
      total: rows.length,
      columns: COLUMNS,
      empty: () =>
        empty(
          "No models registered yet.",
          "A model is a name for checkpoints that are worth keeping. Register one from the checkpoints of a trial, or in Python:",
          h("code", 'client.create_model("mnist").register_version(checkpoint_uuid)'),
        ),
    });
    return [
      h("h1.hidden-text", "Models"),
      h(
        "section.card",
        { "aria-label": "Models" },
        h(
          "div.bar.table-tools",
          button("New model", () => this.#create()),
          this.found.some((one) => one.archived)
            ? button("Archived", () => setQuery({ archived: !showsArchived }), { pressed: showsArchived })
            : null,
          h("span.count", count(rows.length, "model")),
          button("CSV", () => this.table.export("models"), { kind: "quiet" }),
        ),
        hold(this.table.node),
      ),
    ];
  }

  keys() {
    return this.table.keys((row) => go(hrefOf(row.name)));
  }
}

/** @param {Place} place */
export const open = (place) => new Models(place).begin();
