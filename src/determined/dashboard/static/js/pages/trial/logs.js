// The log of a trial: live, searchable, each line with its own address.

import { get, path } from "../../api.js";
import { h, hold } from "../../dom.js";
import { want } from "../../live.js";
import { Page } from "../../page.js";
import { setQuery } from "../../router.js";
import { diffView } from "../../widgets/diff.js";
import { filterParams, logFilters } from "../../widgets/log_filters.js";
import { LogView, marker } from "../../widgets/log_view.js";
import { button, card, empty, isOver, problem, skeleton } from "../../widgets/parts.js";

const PAGE = 500;

class Logs extends Page {
  constructor(place, owner) {
    super(place);
    this.owner = owner;
    this.lines = new LogView({
      older: () => this.#older(), newer: () => this.#newer(), follow: () => this.draw(),
      href: (one) => `/trials/${owner.id}/logs?${new URLSearchParams({ ...Object.fromEntries(new URLSearchParams(location.search)), line: one.line })}`,
    });
    want({ log: owner.id });
  }

  close() {
    super.close();
    want({});
  }

  get filtered() {
    const { search, level, rank, since, until } = this.query;
    return Boolean(search || level || rank || since || until);
  }

  #fetch(params) {
    return get(path("trials", this.owner.id, "logs"), { ...filterParams(this.query), limit: PAGE, ...params }, this.signal);
  }

  load() {
    const text = JSON.stringify([filterParams(this.query), this.query.line, this.query.other]);
    if (text === this.loaded) return null;
    this.loaded = text;
    const marked = this.query.line ? Number(this.query.line) : null;
    return this.ask(async () => {
      if (this.query.other) {
        this.diff = await get(path("trials", this.owner.id, "logs", "diff"), { other: this.query.other }, this.signal);
        return;
      }
      this.diff = null;
      const answer = await this.#fetch(marked === null ? { tail: 1 } : { from_line: Math.max(1, marked - 100) });
      this.about = answer;
      this.lines.following = marked === null;
      this.#ends(answer);
      this.lines.set(answer.lines, { marked, search: marker(this.query.search, this.query.regex === "1") });
    });
  }

  #ends(answer) {
    this.first = answer.lines[0]?.line ?? null;
    this.last = answer.lines.at(-1)?.line ?? null;
    this.next = answer.next;
  }

  async #older() {
    if (this.asking || this.first === null || this.first <= (this.about.first ?? 1) || this.filtered) return;
    this.asking = true;
    await this.ask(async () => {
      const from = Math.max(1, this.first - PAGE);
      const answer = await this.#fetch({ from_line: from, limit: this.first - from });
      const lines = answer.lines.filter((one) => one.line < this.first);
      this.lines.prepend(lines);
      this.first = lines[0]?.line ?? 0;
    });
    this.asking = false;
  }

  async #newer() {
    if (this.asking || !this.next) return;
    this.asking = true;
    await this.ask(async () => {
      const answer = await this.#fetch({ from_line: this.next });
      this.lines.append(answer.lines);
      this.last = answer.lines.at(-1)?.line ?? this.last;
      this.next = answer.next;
    });
    this.asking = false;
  }

  log({ trial, trial_id: id = trial, lines: came }) {
    if (id !== undefined && id !== this.owner.id) return;
    if (this.next || !this.about) return; // the end is not in sight yet: it comes by scrolling
    const fresh = came.filter((one) => one.line > (this.last ?? 0));
    if (fresh.length && this.last !== null && fresh[0].line > this.last + 1) {
      this.next = this.last + 1; // lines came between the answer and the stream: ask for them
      this.#newer();
      return;
    }
    if (this.filtered) {
      if (fresh.length) this.soon(() => { this.loaded = null; this.load(); }, 2000);
      return;
    }
    this.lines.append(fresh);
    this.last = fresh.at(-1)?.line ?? this.last;
    if (this.about.lines.length === 0) this.draw();
  }

  view() {
    const { id, trial } = this.owner;
    const nothing = this.about && !this.lines.lines.length;
    return [
      this.error ? problem(this.error, () => { this.loaded = null; this.load(); }) : null,
      trial.error ? card("The first error", trial.error.line ? h("a", { href: `/trials/${id}/logs?line=${trial.error.line}` }, `Line ${trial.error.line}`) : null, h("div.inside", {}, h("pre.traceback", { tabindex: 0, "aria-label": "Traceback" }, trial.error.text))) : null,
      h("section.card", { "aria-label": "Log" },
        h("div.bar.table-tools", {}, logFilters(this.query),
          h("span.count", {}, this.about?.total ? `${this.about.total.toLocaleString("en-US")} lines` : ""),
          button("Follow", () => { setQuery({ line: "" }, { replace: true }); this.lines.following = true; this.lines.toEnd(); this.draw(); }, { pressed: this.lines.following && !isOver(trial.state), disabled: isOver(trial.state), title: "Stay at the end while lines come" }),
          this.#otherForm(), h("a.button.quiet", { href: path("trials", id, "logs", "download"), download: "" }, "Download")),
        this.query.other ? this.#diff() : nothing ? empty(this.filtered ? "No line fits these filters." : "No log yet.", this.filtered ? h("a", { href: `/trials/${id}/logs` }, "Show all lines") : "Lines appear here as the trial writes them.") : hold(this.lines.node)),
    ];
  }

  #otherForm() {
    if (this.query.other) return button("Close the difference", () => setQuery({ other: "" }), { kind: "quiet" });
    return h("form.bar", { onsubmit: (event) => { event.preventDefault(); setQuery({ other: new FormData(event.target).get("other") }); } },
      h("input.field.short", { name: "other", inputmode: "numeric", placeholder: "Diff to trial", "aria-label": "Difference to the log of trial" }));
  }

  #diff() {
    if (this.error) return null;
    if (!this.diff) return skeleton(8);
    const text = this.diff.diff ?? this.diff.text ?? "";
    return [this.diff.note ? h("div.note", {}, this.diff.note) : null, text ? diffView(text, "Difference of logs") : empty("The logs are the same, apart from times.")];
  }

  keys() {
    return [{ key: "/", what: "Search", run: () => this.node.querySelector(".search")?.focus() }];
  }
}

export const open = (place, owner) => new Logs(place, owner).begin();
