// A table of any length: only the rows in sight are in the document. Sorting and paging are the
// owner's affair (the server sorts), so that ten thousand rows cost what forty do.

import { h, render, widget } from "../dom.js";
import { csv } from "../format.js";
import { download } from "./parts.js";

const ROW = 32;
const MARGIN = 8; // rows drawn beyond each edge

export class Table {
  // columns: [{key, title, number, fit, cell(row) -> node|text, plain(row) -> text, sort: key|null}]
  constructor({
    label,
    id = (row) => row.id,
    href = null,
    onsort = null,
    onselect = null,
    onneed = null,
    height = null,
  }) {
    Object.assign(this, { label, id, href, onsort, onselect, onneed });
    this.columns = [];
    this.rows = [];
    this.total = 0;
    this.sort = null;
    this.cursor = -1;
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

  // Rows may be sparse: what is missing is asked for with onneed(first, last) when it comes in sight.
  set({
    columns = this.columns,
    rows = this.rows,
    total = rows.length,
    sort = this.sort,
    empty = this.empty,
  }) {
    Object.assign(this, { columns, rows, total, sort, empty });
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
    const space = (rows, key) =>
      rows > 0
        ? h(
            "tr.space",
            { key, "aria-hidden": "true" },
            h("td", { colspan: width, style: { height: `${rows * ROW}px` } }),
          )
        : null;
    const body = [];
    for (let at = first; at < last; at += 1)
      body.push(this.rows[at] ? this.#row(this.rows[at], at) : this.#missing(at, width));
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
    if (this.onneed) this.#need(first, last);
  }

  #need(first, last) {
    let from = first;
    while (from < last && this.rows[from]) from += 1;
    if (from < last) this.onneed(from, last);
  }

  #head(column) {
    const order = this.sort?.key === (column.sort ?? column.key) ? this.sort.order : null;
    const sortable = this.onsort && column.sort !== null;
    const text = [
      column.title,
      order ? h("span", { "aria-hidden": "true" }, order === "asc" ? " ↑" : " ↓") : null,
    ];
    return h(
      column.number ? "th.number" : "th",
      {
        key: column.key,
        scope: "col",
        title: column.hint ?? column.title,
        "aria-sort": order === "asc" ? "ascending" : order === "desc" ? "descending" : null,
      },
      sortable
        ? h(
            "button",
            {
              type: "button",
              onclick: () =>
                this.onsort(
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
    const known = this.rows.filter(Boolean);
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
          for (const row of known)
            event.target.checked ? this.selected.add(this.id(row)) : this.selected.delete(this.id(row));
          this.#selectionChanged();
        },
      }),
    );
  }

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
          `td${column.number ? ".number" : ""}${column.fit ? ".fit" : ""}`,
          { title: column.hover?.(row) ?? null },
          column.cell(row),
        ),
      ),
    );
  }

  #missing(at, width) {
    return h(
      "tr",
      { key: `missing-${at}`, "aria-rowindex": at + 2 },
      h("td", { colspan: width }, h("div.skeleton", { style: { width: "60%" } })),
    );
  }

  toggle(at = this.cursor, range = false) {
    if (!this.rows[at]) return;
    const id = this.id(this.rows[at]);
    const choose = !this.selected.has(id);
    const from = range && this.lastToggled !== undefined ? this.lastToggled : at;
    for (let i = Math.min(from, at); i <= Math.max(from, at); i += 1) {
      if (this.rows[i])
        choose ? this.selected.add(this.id(this.rows[i])) : this.selected.delete(this.id(this.rows[i]));
    }
    this.lastToggled = at;
    this.#selectionChanged();
  }

  clearSelection() {
    this.selected.clear();
    this.#selectionChanged();
  }

  #selectionChanged() {
    this.draw();
    this.onselect?.(this.selected);
  }

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

  // The keys of a page with a table; `open` goes where the row leads.
  keys(open) {
    return [
      { key: "j", also: "ArrowDown", what: "Next row", run: () => this.move(1) },
      { key: "k", also: "ArrowUp", what: "Previous row", run: () => this.move(-1) },
      {
        key: "Enter",
        what: "Open the row",
        run: (event) =>
          this.rows[this.cursor] && !event.target.closest("a, button") ? open(this.rows[this.cursor]) : false,
      },
      ...(this.onselect ? [{ key: "x", what: "Select the row", run: () => this.toggle() }] : []),
    ];
  }

  export(name) {
    const text = csv([
      this.columns.map((column) => column.title),
      ...this.rows.filter(Boolean).map((row) => this.columns.map((column) => column.plain(row))),
    ]);
    download(`${name}.csv`, new Blob([text], { type: "text/csv" }));
  }
}
