// Lines of a log in a box that scrolls: older ones come when one scrolls up, new ones at the end.

import { h, render, widget } from "../dom.js";
import { clock, moment } from "../format.js";

const MOST = 5000; // lines in the document; farther ones come again when scrolled to

export class LogView {
  /**
   * older(), newer() ask for more at either end; href(line) is a line's permanent address
   * @param {object} how
   * @param {() => unknown} how.older
   * @param {() => unknown} [how.newer]
   * @param {(line: Api.LineJson) => string} how.href
   * @param {(following: boolean) => unknown} [how.follow]
   * @param {boolean} [how.many]
   */
  constructor({ older, newer, href, follow, many = false }) {
    this.older = older;
    this.newer = newer;
    this.href = href;
    this.many = many;
    this.onfollow = follow;
    /** @type {Api.LineJson[]} */
    this.lines = [];
    this.following = true;
    /** @type {number | null} */
    this.marked = null;
    /** @type {RegExp | null} */
    this.search = null;
    this.node = widget(
      h("div.log", {
        tabindex: 0,
        role: "log",
        "aria-label": "Log",
        "aria-live": "off",
        onscroll: () => this.#scrolled(),
      }),
    );
  }

  /**
   * @param {Api.LineJson[]} lines
   * @param {{ marked?: number | null, search?: RegExp | null }} [how]
   */
  set(lines, { marked = null, search = null } = {}) {
    this.lines = lines;
    this.marked = marked;
    this.search = search;
    render(this.node, this.#rows(lines));
    const line =
      marked === null ? null : /** @type {HTMLElement | null} */ (this.node.querySelector("[data-marked]"));
    if (line) this.node.scrollTop = line.offsetTop - this.node.offsetTop - this.node.clientHeight / 2;
    else if (this.following) this.toEnd();
  }

  /** @param {Api.LineJson[]} lines */
  append(lines) {
    if (!lines.length) return;
    this.lines = [...this.lines, ...lines];
    this.node.append(...this.#rows(lines));
    while (this.following && this.lines.length > MOST) {
      this.lines.shift();
      this.node.firstChild?.remove();
    }
    if (this.following) this.toEnd();
  }

  /** @param {Api.LineJson[]} lines */
  prepend(lines) {
    if (!lines.length) return;
    const before = this.node.scrollHeight;
    this.lines = [...lines, ...this.lines];
    this.node.prepend(...this.#rows(lines));
    this.node.scrollTop += this.node.scrollHeight - before;
  }

  toEnd() {
    this.node.scrollTop = this.node.scrollHeight;
  }

  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.node;
    const atEnd = scrollHeight - scrollTop - clientHeight < 24;
    if (atEnd !== this.following) {
      this.following = atEnd;
      this.onfollow?.(atEnd);
    }
    if (scrollTop < 200) this.older?.();
    if (scrollHeight - scrollTop - clientHeight < 200) this.newer?.();
  }

  /** @param {Api.LineJson[]} lines */
  #rows(lines) {
    return lines.map((one) =>
      h(
        this.many ? "div.log-line.many" : "div.log-line",
        {
          key: `${one.trial_id}:${one.source}:${one.line}`,
          "data-level": one.level ?? "",
          "data-marked": one.line === this.marked,
        },
        h("a", { href: this.href(one) }, this.many ? `${one.trial_id}:${one.line}` : one.line),
        h("time", { title: one.time ? moment(one.time) : "" }, one.time ? clock(Number(one.time)) : ""),
        h("span", { title: one.level ?? "" }, one.rank === null ? "" : `r${one.rank}`),
        h("code", this.#highlighted(one.text)),
      ),
    );
  }

  /** @param {string} text */
  #highlighted(text) {
    if (!this.search) return text;
    const parts = [];
    let end = 0;
    for (const match of text.matchAll(this.search)) {
      if (!match[0]) break;
      parts.push(text.slice(end, match.index), h("mark", match[0]));
      end = match.index + match[0].length;
    }
    return [...parts, text.slice(end)];
  }
}

/**
 * What the reader looks for, as an expression that marks it; null when there is nothing to mark.
 * @param {string | undefined} text
 * @param {boolean} isRegex
 */
export function marker(text, isRegex) {
  if (!text) return null;
  try {
    return new RegExp(isRegex ? text : text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), isRegex ? "g" : "gi");
  } catch {
    return null; // half-typed: the server says what is wrong with it
  }
}
