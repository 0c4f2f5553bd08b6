// The model registry: models and their versions.

import { get, path } from "../api.js";
import { h, hold } from "../dom.js";
import { ago, bytes, count, moment, number } from "../format.js";
import { Page } from "../page.js";
import { go } from "../router.js";
import { card, copyable, empty, facts, problem, skeleton } from "../widgets/parts.js";
import { Table } from "../widgets/table.js";

class Models extends Page {
  constructor(place) {
    super(place);
    this.table = new Table({ label: "Models", id: (row) => row.name, height: "calc(100vh - 180px)" });
  }

  get name() {
    return this.place.params.name;
  }

  get title() {
    return this.name ?? "Models";
  }

  accepts(place) {
    return place.params.name === this.name;
  }

  load() {
    return this.ask(async () => {
      this.found = await get(this.name ? path("models", this.name) : "/api/models", {}, this.signal);
    });
  }

  view() {
    if (this.error) return problem(this.error, () => this.load());
    if (!this.found) return skeleton(8);
    return this.name ? this.#one() : this.#all();
  }

  #all() {
    const { rows } = this.found;
    this.table.set({
      rows,
      total: rows.length,
      columns: [
        {
          key: "name",
          title: "Model",
          sort: null,
          cell: (row) =>
            h(
              "span.name",
              h("a", { href: `/models/${encodeURIComponent(row.name)}` }, row.name),
              (row.labels ?? []).map((label) => h("span.chip", label)),
            ),
          plain: (row) => row.name,
        },
        {
          key: "description",
          title: "Description",
          sort: null,
          cell: (row) => row.description,
          plain: (row) => row.description,
          hover: (row) => row.description,
        },
        {
          key: "versions",
          title: "Versions",
          number: true,
          sort: null,
          cell: (row) => row.num_versions,
          plain: (row) => row.num_versions,
        },
        {
          key: "updated",
          title: "Updated",
          sort: null,
          cell: (row) => ago(row.updated ?? row.created),
          plain: (row) => moment(row.updated ?? row.created),
          hover: (row) => moment(row.updated ?? row.created),
        },
      ],
      empty: () =>
        empty(
          "No models registered yet.",
          "A model is a name for checkpoints that are worth keeping; register one in Python:",
          h("code", 'client.create_model("mnist").register_version(checkpoint_uuid)'),
        ),
    });
    return [
      h("h1.hidden-text", "Models"),
      h(
        "section.card",
        { "aria-label": "Models" },
        h("div.bar.table-tools", h("span.count", count(rows.length, "model"))),
        hold(this.table.node),
      ),
    ];
  }

  #one() {
    const model = this.found;
    const { versions } = model;
    return [
      h(
        "div.head",
        h(
          "div.what",
          h("div.crumbs", h("a", { href: "/models" }, "Models"), "/", h("span", model.name)),
          h("h1", model.name),
          model.description ? h("p.muted", model.description) : null,
          h(
            "div.under",
            count(versions.length, "version"),
            (model.labels ?? []).map((label) => h("span.chip", label)),
          ),
        ),
      ),
      model.notes ? card("Notes", null, h("div.inside", h("pre", model.notes))) : null,
      versions.length
        ? versions.map((one) =>
            card(
              `Version ${one.number}${one.name ? `: ${one.name}` : ""}`,
              h("span.muted", { title: moment(one.created) }, ago(one.created)),
              h(
                "div.inside.stack",
                facts([
                  ["Checkpoint", h("span.mono", one.checkpoint_uuid)],
                  [
                    "Trial",
                    one.trial_id &&
                      h(
                        "a",
                        { href: `/trials/${one.trial_id}` },
                        `Trial ${one.trial_id} at batch ${number(one.steps)}`,
                      ),
                  ],
                  ["Size", bytes(one.size)],
                  ["Comment", one.comment],
                  ["Notes", one.notes],
                  ["Labels", (one.labels ?? []).join(", ")],
                ]),
                one.load ? copyable(one.load) : null,
                one.state === "DELETED"
                  ? null
                  : h(
                      "a",
                      { href: `/api/checkpoints/${one.checkpoint_uuid}/download`, download: "" },
                      "Download",
                    ),
              ),
            ),
          )
        : empty("No versions yet."),
    ];
  }

  keys() {
    return this.name ? [] : this.table.keys((row) => go(`/models/${encodeURIComponent(row.name)}`));
  }
}

export const open = (place) => new Models(place).begin();
