// A table of any length: only the rows in sight are in the document. Sorting and paging are the
// owner's affair (the server sorts), so that ten thousand rows cost what forty do.

import { h, render, widget } from "../dom.js";
import { csv } from "../format.js";
import { download } from "./parts.js";

const ROW = 32;
const MARGIN = 8; // rows drawn beyond each edge

/**
 * @import { Key } from "../keys.js"
 */

/**
 * @template Row
 * @typedef {object} Column
 * @property {string} key
 * @property {string} title
 * @property {boolean} [number] aligned at the right
 * @property {boolean} [fit] no wider than it must be
 * @property {boolean} [wide] left out on a phone
 * @property {boolean} [always] cannot be taken away
 * @property {boolean} [rare] shown where rows differ in it
 * @property {boolean} [hidden] shown when it is asked for
 * @property {string | null} [about] what pointing at its title says
 * @property {string} [kind] of its values: a hyperparameter, a metric
 * @property {"asc" | "desc"} [first] how the first click sorts
 * @property {string | null} [sort] what the server sorts by; null: it cannot
 * @property {(row: Row) => Ui.Child} cell
 * @property {(row: Row) => unknown} plain the value in a file
 * @property {(row: Row) => string | null} [hover]
 */

/** @template Row */
export class Table {
  /**
   * @param {object} how
   * @param {string} how.label
   * @param {(row: Row) => string | number} how.id
   * @param {((sort: string, order: string) => unknown) | null} [how.onsort]
   * @param {((selected: Set<string | number>) => unknown) | null} [how.onselect]
   * @param {((first: number, last: number) => unknown) | null} [how.onneed]
   * @param {string | null} [how.height]
   */
  constructor({ label, id, onsort = null, onselect = null, onneed = null, height = null }) {
    this.label = label;
    this.id = id;
    this.onsort = onsort;
    this.onselect = onselect;
    this.onneed = onneed;
    /** @type {Column<Row>[]} */
    this.columns = [];
    /** @type {(Row | undefined)[]} */
    this.rows = [];
    this.total = 0;
    /** @type {{ key: string, order: string } | null} */
    this.sort = null;
    /** @type {(() => Ui.Child) | null} */
    this.empty = null;
    this.cursor = -1;
    /** @type {number | null} */
    this.lastToggled = null;
    /** @type {Set<string | number>} */
    this.selected = new Set();
    this.scroller = h("div.table-scroll", {
      tabindex: 0,
      role: "region",
      "aria-label": `${label}, rows`,
      onscroll: () => this.#later(),
    });
    if (height) this.scroller.style.maxHeight = height;
    this.node = widget(h("div.table", this.scroller));
    this.pending = 0;
    new ResizeObserver(() => this.#later()).observe(this.scroller);
  }

  /**
   * Rows may be sparse: what is missing is asked for with onneed(first, last) when it comes in sight.
   * @param {object} what
   * @param {Column<Row>[]} [what.columns]
   * @param {(Row | undefined)[]} [what.rows]
   * @param {number} [what.total]
   * @param {{ key: string, order: string } | null} [what.sort]
   * @param {(() => Ui.Child) | null} [what.empty]
   */
  set({
    columns = this.columns,
    rows = this.rows,
    total = rows.length,
    sort = this.sort,
    empty = this.empty,
  }) {
    this.columns = columns;
    this.rows = rows;
    this.total = total;
    this.sort = sort;
    this.empty = empty;
    this.cursor = Math.min(this.cursor, total - 1);
    this.draw();
  }

  #later() {
    this.pending ||= requestAnimationFrame(() => this.draw());
  }

  draw() {
    cancelAnimationFrame(this.pending);
    this.pending = 0;
    const { scrollTop, clientHeight } = this.scroller;
    const first = Math.max(0, Math.floor(scrollTop / ROW) - MARGIN);
    const last = Math.min(this.total, Math.ceil((scrollTop + (clientHeight || 800)) / ROW) + MARGIN);
    const width = this.columns.length + (this.onselect ? 1 : 0);
    /**
     * @param {number} rows
     * @param {string} key
     */
    const space = (rows, key) =>
      rows > 0
        ? h(
            "tr.space",
            { key, "aria-hidden": "true" },
            h("td", { colspan: width, style: { height: `${rows * ROW}px` } }),
          )
        : null;
    const body = [];
    for (let at = first; at < last; at += 1) {
      const row = this.rows[at];
      body.push(row ? this.#row(row, at) : this.#missing(at, width));
    }
    render(
      this.scroller,
      h(
        "table",
        { "aria-label": this.label, "aria-rowcount": this.total + 1 },
        h(
          "thead",
          h(
            "tr",
            { "aria-rowindex": 1 },
            this.onselect ? this.#pickAll() : null,
            this.columns.map((column) => this.#head(column)),
          ),
        ),
        h("tbody", space(first, "above"), body, space(this.total - last, "below")),
      ),
      this.total === 0 && this.empty ? this.empty() : null,
    );
    this.#need(first, last);
  }

  /**
   * @param {number} first
   * @param {number} last
   */
  #need(first, last) {
    let from = first;
    while (from < last && this.rows[from]) from += 1;
    if (from < last) this.onneed?.(from, last);
  }

  /** @param {Column<Row>} column */
  #head(column) {
    const { sort, onsort } = this;
    const order = sort?.key === (column.sort ?? column.key) ? sort.order : null;
    const text = [
      column.title,
      order ? h("span", { "aria-hidden": "true" }, order === "asc" ? " ↑" : " ↓") : null,
    ];
    return h(
      `th${classes(column)}`,
      {
        key: column.key,
        scope: "col",
        title: column.about ?? column.title,
        "aria-sort": order === "asc" ? "ascending" : order === "desc" ? "descending" : null,
      },
      onsort && column.sort !== null
        ? h(
            "button",
            {
              type: "button",
              onclick: () =>
                onsort(
                  column.sort ?? column.key,
                  order === "desc" ? "asc" : order === "asc" ? "desc" : (column.first ?? "desc"),
                ),
            },
            text,
          )
        : text,
    );
  }

  #pickAll() {
    const known = this.#known();
    const picked = known.filter((row) => this.selected.has(this.id(row))).length;
    return h(
      "th.pick",
      { key: "pick" },
      h("input", {
        type: "checkbox",
        "aria-label": "Select all loaded rows",
        checked: picked > 0 && picked === known.length,
        indeterminate: picked > 0 && picked < known.length,
        onchange: (event) => {
          for (const row of known) this.#choose(row, event.currentTarget.checked);
          this.#selectionChanged();
        },
      }),
    );
  }

  /**
   * @param {Row} row
   * @param {number} at
   */
  #row(row, at) {
    const id = this.id(row);
    const chosen = this.selected.has(id);
    return h(
      "tr",
      {
        key: id,
        "aria-rowindex": at + 2,
        "aria-selected": this.onselect ? String(chosen) : null,
        "data-id": id,
        "data-cursor": at === this.cursor,
      },
      this.onselect
        ? h(
            "td.pick",
            h("input", {
              type: "checkbox",
              checked: chosen,
              "aria-label": `Select row ${id}`,
              onclick: (event) => this.toggle(at, event.shiftKey),
            }),
          )
        : null,
      this.columns.map((column) =>
        h(
          `td${classes(column)}${column.fit ? ".fit" : ""}`,
          { title: column.hover?.(row) ?? null },
          column.cell(row),
        ),
      ),
    );
  }

  /**
   * @param {number} at
   * @param {number} width
   */
  #missing(at, width) {
    return h(
      "tr",
      { key: `missing-${at}`, "aria-rowindex": at + 2 },
      h("td", { colspan: width }, h("div.skeleton", { style: { width: "60%" } })),
    );
  }

  /**
   * @param {number} [at]
   * @param {boolean} [range]
   */
  toggle(at = this.cursor, range = false) {
    const toggled = this.rows[at];
    if (!toggled) return;
    const isChosen = !this.selected.has(this.id(toggled));
    const from = range ? (this.lastToggled ?? at) : at;
    for (const row of this.rows.slice(Math.min(from, at), Math.max(from, at) + 1)) {
      if (row) this.#choose(row, isChosen);
    }
    this.lastToggled = at;
    this.#selectionChanged();
  }

  /**
   * @param {Row} row
   * @param {boolean} isChosen
   */
  #choose(row, isChosen) {
    if (isChosen) this.selected.add(this.id(row));
    else this.selected.delete(this.id(row));
  }

  #known() {
    return this.rows.filter((row) => row !== undefined);
  }

  clearSelection() {
    this.selected.clear();
    this.#selectionChanged();
  }

  #selectionChanged() {
    this.draw();
    this.onselect?.(this.selected);
  }

  /** @param {number} step */
  move(step) {
    if (!this.total) return;
    this.cursor = Math.max(0, Math.min(this.total - 1, this.cursor + step));
    const top = this.cursor * ROW;
    const { scrollTop, clientHeight } = this.scroller;
    if (top < scrollTop) this.scroller.scrollTop = top;
    else if (top + 2 * ROW > scrollTop + clientHeight) this.scroller.scrollTop = top + 2 * ROW - clientHeight;
    this.draw();
    this.scroller.querySelector("tr[data-cursor]")?.scrollIntoView({ block: "nearest" });
  }

  /**
   * The keys of a page with a table; `open` goes where the row leads.
   * @param {(row: Row) => unknown} open
   * @returns {Key[]}
   */
  keys(open) {
    return [
      { key: "j", also: "ArrowDown", what: "Next row", run: () => this.move(1) },
      { key: "k", also: "ArrowUp", what: "Previous row", run: () => this.move(-1) },
      {
        key: "Enter",
        what: "Open the row",
        run: (event) => {
          const row = this.rows[this.cursor];
          const isOnLink = event.target instanceof Element && event.target.closest("a, button") !== null;
          return row && !isOnLink ? open(row) : false;
        },
      },
      ...(this.onselect ? [{ key: "x", what: "Select the row", run: () => this.toggle() }] : []),
    ];
  }

  /** @param {string} name */
  export(name) {
    const text = csv([
      this.columns.map((column) => column.title),
      ...this.#known().map((row) => this.columns.map((column) => column.plain(row))),
    ]);
    download(`${name}.csv`, new Blob([text], { type: "text/csv" }));
  }
}

/** @param {Column<any>} column */
const classes = ({ number, wide }) => `${number ? ".number" : ""}${wide ? ".wide-only" : ""}`;
