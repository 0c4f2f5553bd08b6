// One model of the registry with its versions.

import { get, path, send } from "../api.js";
import { h } from "../dom.js";
import { ago, bytes, count, moment, number, value } from "../format.js";
import { Page } from "../page.js";
import { go } from "../router.js";
import { confirm, dialog, labelsOf, textField } from "../widgets/dialog.js";
import { button, card, copyable, csvButton, empty, facts, problem, skeleton } from "../widgets/parts.js";
import { tried } from "../widgets/toast.js";

/** @import { Place } from "../router.js" */

class Model extends Page {
  /** @type {Api.ModelDetail | null} */
  found = null;

  get name() {
    return this.place.params.name;
  }

  get title() {
    return this.name;
  }

  /** @param {Place} place */
  accepts(place) {
    return place.params.name === this.name;
  }

  load() {
    return this.ask(async () => {
      this.found = await get(path("models", this.name), {}, this.signal);
    });
  }

  /**
   * @param {string} said when it is done
   * @param {() => Promise<Api.ModelCompleted>} work
   */
  async #change(said, work) {
    await tried(work, said);
    await this.load();
  }

  /** @param {Api.ModelDetail} model */
  async #edit({ description, labels }) {
    const fields = [
      textField("description", "Description", { value: description }),
      textField("labels", "Labels, with commas", { value: labels.join(", ") }),
    ];
    const answer = await dialog("Edit model", fields, { ok: "Save" });
    if (!answer) return;
    const body = { description: answer.description, labels: labelsOf(answer.labels) };
    this.#change("Saved.", () => send("PATCH", path("models", this.name), body));
  }

  /** @param {Api.ModelDetail} model */
  async #delete({ versions }) {
    const words = `${count(versions.length, "version")} will be removed. The checkpoints stay, but are no longer protected from deletion.`;
    if (!(await confirm(`Delete the model ${this.name}?`, words, "Delete"))) return;
    if (await tried(() => send("POST", path("models", this.name, "delete")), "Deleted.")) go("/models");
  }

  /** @param {Api.VersionJson} version */
  async #editVersion({ number: version, name, comment, notes }) {
    const fields = [
      textField("name", "Name", { value: name, maxlength: 255 }),
      textField("comment", "Comment", { value: comment }),
      h(
        "label.labelled.wide-field",
        "Notes",
        h("textarea.field.long", { name: "notes", rows: 6, value: notes }),
      ),
    ];
    const answer = await dialog(`Edit version ${version}`, fields, { ok: "Save" });
    if (answer)
      this.#change("Saved.", () => send("PATCH", path("models", this.name, "versions", version), answer));
  }

  /** @param {number} version */
  async #deleteVersion(version) {
    const words = "Its checkpoint stays, but this version no longer protects it from deletion.";
    if (await confirm(`Delete version ${version}?`, words, "Delete"))
      this.#change("Deleted.", () => send("POST", path("models", this.name, "versions", version, "delete")));
  }

  view() {
    if (this.error) return problem(this.error, () => this.load());
    if (!this.found) return skeleton(8);
    const { versions } = this.found;
    return [
      this.#head(this.found),
      versions.length
        ? versions.map((one) => this.#version(one))
        : empty("No versions yet.", "Register one from the checkpoints of a trial or an experiment."),
    ];
  }

  /** @param {Api.ModelDetail} model */
  #head(model) {
    const { archived } = model;
    return h(
      "div.head",
      h(
        "div.what",
        h("div.crumbs", h("a", { href: "/models" }, "Models"), "/", h("span", model.name)),
        h(
          "h1",
          model.name,
          " ",
          button("", () => this.#edit(model), {
            kind: "quiet",
            title: "Edit description and labels",
            picture: "edit",
          }),
        ),
        model.description ? h("p.muted", model.description) : null,
        h(
          "div.under",
          h("span", count(model.versions.length, "version")),
          h("span", `by ${model.owner} in ${model.workspace}`),
          h("span", { title: moment(model.updated) }, `updated ${ago(model.updated)}`),
          archived ? h("span.chip", "archived") : null,
          model.labels.map((label) => h("span.chip", label)),
          Object.entries(model.metadata).map(([key, it]) => h("span.mono", `${key}: ${value(it)}`)),
        ),
      ),
      h(
        "div.bar",
        csvButton(`${model.name}-versions`, () => [
          ["version", "name", "checkpoint", "trial", "batches", "size", "created", "comment"],
          ...model.versions.map((one) => [
            ...[one.number, one.name, one.checkpoint_uuid, one.trial_id, one.steps, one.size],
            ...[moment(one.created), one.comment],
          ]),
        ]),
        button(archived ? "Unarchive" : "Archive", () =>
          this.#change(archived ? "Unarchived." : "Archived.", () =>
            send("PATCH", path("models", this.name), { archived: !archived }),
          ),
        ),
        button("Delete", () => this.#delete(model), { kind: "danger" }),
      ),
    );
  }

  /** @param {Api.VersionJson} one */
  #version(one) {
    const gone = one.state === "DELETED";
    return card(
      `Version ${one.number}${one.name ? `: ${one.name}` : ""}`,
      [
        h("span.muted", { title: moment(one.created) }, ago(one.created)),
        button("", () => this.#editVersion(one), {
          kind: "quiet",
          title: `Edit version ${one.number}`,
          picture: "edit",
        }),
        button("Delete", () => this.#deleteVersion(one.number), { kind: "quiet" }),
      ],
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
          ["Size", one.size === null ? null : bytes(one.size)],
          ["State", gone ? "its files are deleted" : null],
          ["Comment", one.comment],
          ["Notes", one.notes],
          ...Object.entries(one.metadata).map(
            ([key, it]) => /** @type {const} */ ([h("span.mono", key), h("span.mono", value(it))]),
          ),
        ]),
        one.load && !gone ? copyable(one.load) : null,
        gone
          ? null
          : h("a", { href: `/api/checkpoints/${one.checkpoint_uuid}/download`, download: "" }, "Download"),
      ),
    );
  }
}

/** @param {Place} place */
export const open = (place) => new Model(place).begin();
