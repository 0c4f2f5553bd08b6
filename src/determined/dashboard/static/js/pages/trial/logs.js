// The log of a trial: live, searchable, each line with its own address.

import { get, path, query as toQuery } from "../../api.js";
import { focusOn, h, hold, textIn } from "../../dom.js";
import { count } from "../../format.js";
import { want } from "../../live.js";
import { Page } from "../../page.js";
import { setQuery } from "../../router.js";
import { diffView } from "../../widgets/diff.js";
import { filterParams, logFilters } from "../../widgets/log_filters.js";
import { LogSource } from "../../widgets/log_source.js";
import { LogView, marker } from "../../widgets/log_view.js";
import { button, card, empty, isOver, problem, skeleton } from "../../widgets/parts.js";

/**
 * @import { TrialPage } from "../trial.js"
 * @import { Log } from "../../live.js"
 * @import { Place } from "../../router.js"
 */

class Logs extends Page {
  /**
   * @param {Place} place
   * @param {TrialPage} owner
   */
  constructor(place, owner) {
    super(place);
    this.owner = owner;
    /** @type {LogSource<number> | null} */
    this.source = null;
    /** @type {AbortController | null} */
    this.request = null;
    /** @type {Api.LogDiffJson | null} */
    this.diff = null;
    /** @type {number | null} */
    this.searching = null;
    /** @type {string | null} */
    this.loaded = null;
    this.lines = new LogView({
      older: () => this.#more("older"),
      newer: () => this.#more("newer"),
      follow: () => this.draw(),
      href: (one) => `/trials/${owner.id}/logs?${toQuery({ ...this.query, line: one.line })}`,
    });
    want({ log: owner.id });
  }

  close() {
    super.close();
    this.request?.abort();
    want({});
  }

  get filtered() {
    const { search, level, rank, since, until } = this.query;
    return Boolean(search || level || rank || since || until);
  }

  load() {
    const text = JSON.stringify([
      filterParams(this.query),
      this.query.regex,
      this.query.line,
      this.query.other,
    ]);
    if (text === this.loaded) return null;
    this.loaded = text;
    return this.ask(() => (this.query.other ? this.#loadDiff() : this.#loadLines()));
  }

  async #loadDiff() {
    this.diff = null;
    this.diff = await get(
      path("trials", this.owner.id, "logs", "diff"),
      { other: this.query.other },
      this.signal,
    );
  }

  async #loadLines() {
    this.request?.abort();
    const request = new AbortController();
    this.request = request;
    const marked = this.query.line ? Number(this.query.line) : null;
    /** @type {LogSource<number>} */
    const source = new LogSource(
      (params) =>
        get(
          path("trials", this.owner.id, "logs"),
          { ...filterParams(this.query), regex: this.query.regex, ...params },
          request.signal,
        ),
      (line) => {
        this.searching = line;
        this.draw();
      },
    );
    const lines = await source.open(marked);
    this.source = source;
    this.lines.following = marked === null;
    this.lines.set(lines, { marked, search: marker(this.query.search, this.query.regex === "1") });
  }

  /** @param {"older" | "newer"} which */
  #more(which) {
    const { source } = this;
    if (!source || source.busy) return;
    this.ask(async () => {
      const lines = await source[which]();
      if (source !== this.source) return;
      if (which === "older") this.lines.prepend(lines);
      else this.lines.append(lines);
    });
  }

  /** @param {Log} log */
  log({ trial_id: id, lines: came, total }) {
    const { source } = this;
    if (id !== this.owner.id || !source || source.next !== null) return; // the end is not in sight: it comes by scrolling
    source.total = total ?? source.total;
    const fresh = came.filter((one) => one.line > source.last);
    if (!fresh.length) return;
    if (this.filtered || fresh[0].line > source.last + 1) {
      source.next = source.last + 1; // with filters, or after a gap, the server is asked for what came
      this.soon(() => this.#more("newer"), 1000);
      return;
    }
    source.last = fresh[fresh.length - 1].line;
    this.lines.append(fresh);
    this.draw();
  }

  again() {
    if (!this.source || this.source.next !== null) return;
    this.source.next = this.source.last + 1;
    this.#more("newer");
  }

  view() {
    const { id, trial } = this.owner;
    const nothing = this.source && !this.lines.lines.length && !this.searching;
    return [
      this.error
        ? problem(this.error, () => {
            this.loaded = null;
            this.load();
          })
        : null,
      trial.error
        ? card(
            "The first error",
            trial.error.line
              ? h("a", { href: `/trials/${id}/logs?line=${trial.error.line}` }, `Line ${trial.error.line}`)
              : null,
            h("div.inside", h("pre.traceback", { tabindex: 0, "aria-label": "Traceback" }, trial.error.text)),
          )
        : null,
      h(
        "section.card",
        { "aria-label": "Log" },
        h(
          "div.bar.table-tools",
          logFilters(this.query, { hasRegex: true }),
          h(
            "span.count",
            { role: "status" },
            this.searching
              ? `Searching, now at line ${this.searching.toLocaleString("en-US")} …`
              : this.source
                ? count(this.source.total, "line")
                : "",
          ),
          button(
            "Follow",
            () => {
              setQuery({ line: "" }, { replace: true });
              this.lines.following = true;
              this.lines.toEnd();
              this.draw();
            },
            {
              pressed: this.lines.following && !isOver(trial.state),
              disabled: isOver(trial.state),
              title: "Follow new lines",
            },
          ),
          this.#otherForm(),
          h("a.button.quiet", { href: path("trials", id, "logs", "download"), download: "" }, "Download"),
        ),
        this.query.other
          ? this.#diff()
          : nothing
            ? empty(
                this.filtered ? "No lines match these filters." : "No log yet.",
                this.filtered
                  ? h("a", { href: `/trials/${id}/logs` }, "Show all lines")
                  : "Lines appear here as the trial writes them.",
              )
            : hold(this.lines.node),
      ),
    ];
  }

  #otherForm() {
    if (this.query.other) return button("Close the diff", () => setQuery({ other: "" }), { kind: "quiet" });
    return h(
      "form.bar",
      {
        onsubmit: (event) => {
          event.preventDefault();
          setQuery({ other: textIn(event.currentTarget, "other") });
        },
      },
      h("input.field.short", {
        name: "other",
        inputmode: "numeric",
        placeholder: "Diff with trial",
        "aria-label": "Compare with the log of trial",
      }),
    );
  }

  #diff() {
    if (this.error) return null;
    if (!this.diff) return skeleton(8);
    const text = this.diff.diff;
    return [
      this.diff.note ? h("div.note", this.diff.note) : null,
      text ? diffView(text, "Log diff") : empty("The logs are the same, apart from times."),
    ];
  }

  keys() {
    return [{ key: "/", what: "Search", run: () => focusOn(this.node, ".search") }];
  }
}

/**
 * @param {Place} place
 * @param {TrialPage} owner
 */
export const open = (place, owner) => new Logs(place, owner).begin();
