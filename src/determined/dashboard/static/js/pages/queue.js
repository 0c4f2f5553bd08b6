// What runs where, what waits, and why.

import { get } from "../api.js";
import { h } from "../dom.js";
import { ago, count } from "../format.js";
import { Page } from "../page.js";
import { card, csvButton, empty, problem, skeleton } from "../widgets/parts.js";

/** @import { Place } from "../router.js" */

/**
 * @typedef {object} Row a trial that runs (`since`), or one that waits (`why`, `priority`)
 * @property {number} trial_id
 * @property {number | null} experiment_id
 * @property {string} name
 * @property {number | number[]} slots
 * @property {Api.Number} [since]
 * @property {string} [why]
 * @property {number} [priority]
 * @property {string} [job]
 * @property {string} [host]
 */

class Queue extends Page {
  /** @type {Api.QueueJson | null} */
  found = null;

  get title() {
    return "Queue";
  }

  load() {
    return this.ask(async () => {
      this.found = await get("/api/queue", {}, this.signal);
    });
  }

  changed() {
    this.soon(() => this.load(), 1000);
  }

  view() {
    if (this.error) return problem(this.error, () => this.load());
    if (!this.found) return skeleton(8);
    const { slots, partitions, left_out, running, waiting } = this.found;
    return [
      h("h1.hidden-text", "Queue"),
      left_out.length
        ? card(
            "Left out",
            null,
            h(
              "div.inside",
              left_out.map((line) => h("div", { key: line }, line)),
            ),
          )
        : null,
      partitions.length ? this.#partitions(partitions) : this.#slots(slots),
      this.#table("Running", running, "Nothing runs."),
      this.#table("Waiting", waiting, "Nothing waits."),
    ];
  }

  /** @param {Api.SlotJson[]} slots */
  #slots(slots) {
    const used = slots.filter((one) => one.used_by).length;
    return card(
      "Slots",
      h("span.muted", `${used} of ${count(slots.length, "slot")} in use`),
      h(
        "div.inside",
        slots.length
          ? h(
              "div.slot-grid",
              slots.map((one) => this.#slot(one)),
            )
          : empty("No slots."),
      ),
    );
  }

  /** @param {Api.PartitionJson[]} partitions of a batch system, which finds the slots itself */
  #partitions(partitions) {
    return card(
      "Partitions",
      null,
      h(
        "div.inside",
        h(
          "div.slot-grid",
          partitions.map((one) =>
            h(
              "div.slot",
              { key: one.name, "data-used": one.idle < one.nodes },
              h("div", h("strong", one.name), h("span.muted", one.is_default ? " default" : "")),
              h(
                "div.muted",
                `${count(one.nodes, "node")} of up to ${one.size}, ${one.idle} idle, ${one.down} down`,
              ),
            ),
          ),
        ),
      ),
    );
  }

  /** @param {Api.SlotJson} slot */
  #slot({ id, node, kind, name, used_by: by }) {
    return h(
      "div.slot",
      { key: String(id), "data-used": Boolean(by) },
      h(
        "div",
        h("strong", `Slot ${id}`),
        h("span.muted", ` ${[node, kind, name].filter(Boolean).join(" ")}`),
      ),
      by
        ? h(
            "div.cut",
            h("a", { href: `/trials/${by.trial_id}` }, `Trial ${by.trial_id}`),
            h("span.muted", ` of ${by.name}`),
          )
        : h("div.faint", "free"),
    );
  }

  /**
   * @param {"Running" | "Waiting"} title
   * @param {Row[]} rows
   * @param {string} nothing
   */
  #table(title, rows, nothing) {
    if (!rows.length) return card(title, null, empty(nothing));
    const waiting = title === "Waiting";
    const isJob = !waiting && Boolean(this.found?.partitions.length);
    return card(
      title,
      [
        h("span.muted", count(rows.length, "trial")),
        csvButton(title.toLowerCase(), () => [
          ["trial", "experiment", "name", "slots", waiting ? "why" : "since"],
          ...rows.map((one) => [
            one.trial_id,
            one.experiment_id,
            one.name,
            one.slots,
            waiting ? one.why : one.since,
          ]),
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
              h("th.number", { scope: "col" }, "Trial"),
              h("th", { scope: "col" }, "Experiment"),
              h("th.number", { scope: "col" }, waiting ? "Slots it needs" : isJob ? "Job" : "On slots"),
              isJob ? h("th", { scope: "col" }, "Nodes") : null,
              waiting ? h("th.number", { scope: "col" }, "Priority, 1 is first") : null,
              h("th", { scope: "col" }, waiting ? "Why it is waiting" : "Started"),
            ),
          ),
          h(
            "tbody",
            rows
              .slice(0, 500)
              .map((one) =>
                h(
                  "tr",
                  { key: `${one.experiment_id}-${one.trial_id}` },
                  h(
                    "td.number",
                    one.trial_id ? h("a", { href: `/trials/${one.trial_id}` }, one.trial_id) : "–",
                  ),
                  h("td", h("a", { href: `/experiments/${one.experiment_id}` }, one.name)),
                  h(
                    "td.number",
                    isJob ? one.job : Array.isArray(one.slots) ? one.slots.join(", ") : one.slots,
                  ),
                  isJob ? h("td", one.host) : null,
                  waiting ? h("td.number", one.priority ?? "–") : null,
                  h("td", { title: one.why ?? "" }, waiting ? one.why : one.since ? ago(one.since) : "–"),
                ),
              ),
          ),
        ),
      ),
    );
  }
}

/** @param {Place} place */
export const open = (place) => new Queue(place).begin();
