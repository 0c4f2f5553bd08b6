// Two hyperparameters against each other: the best value in each cell, and how many trials it had.

import { h, render, widget } from "../dom.js";
import { count, number, real } from "../format.js";
import { drawRamp } from "./paint.js";
import { ramp, token } from "./palette.js";
import { pictureOf } from "./picture.js";

export class Heat {
  constructor({ label, height = 420 }) {
    Object.assign(this, { label, height });
    this.canvas = h("canvas.plot-canvas", { role: "img", "aria-label": label });
    this.tip = h("div.plot-tip", { hidden: true });
    this.node = widget(h("div.plot", { style: { height: `${height}px` } }, this.canvas, this.tip));
    this.resizing = new ResizeObserver(() => this.draw());
    this.resizing.observe(this.node);
    this.redraw = () => this.draw();
    addEventListener("themechange", this.redraw);
    this.canvas.onpointermove = (event) => this.#hover(event);
    this.canvas.onpointerleave = () => {
      this.tip.hidden = true;
    };
  }

  close() {
    this.resizing.disconnect();
    removeEventListener("themechange", this.redraw);
  }

  // grid: {x, y: edges or categories, z: rows by y of cells by x, count}
  set({ grid, xTitle, yTitle, smallerIsBetter }) {
    Object.assign(this, { grid, xTitle, yTitle, smallerIsBetter });
    this.draw();
  }

  draw() {
    const width = this.node.clientWidth;
    if (!width || !this.grid) return;
    const dense = window.devicePixelRatio || 1;
    this.canvas.width = width * dense;
    this.canvas.height = this.height * dense;
    this.#paint(this.canvas.getContext("2d"), width, dense);
  }

  picture() {
    const width = this.node.clientWidth;
    return pictureOf(this.label, width, this.height, (ink, dense) => this.#paint(ink, width, dense));
  }

  #paint(ink, width, dense) {
    ink.setTransform(dense, 0, 0, dense, 0, 0);
    ink.font = `11px ${token("font")}`;
    const { z } = this.grid;
    const rows = z.length;
    const columns = z[0]?.length ?? 0;
    const flat = z
      .flat()
      .map(real)
      .filter((it) => Number.isFinite(it));
    const [low, high] = [Math.min(...flat), Math.max(...flat)];
    const box = (this.box = {
      left: 84,
      right: width - 96,
      top: 24,
      bottom: this.height - 44,
      rows,
      columns,
    });
    const [w, t] = [(box.right - box.left) / columns, (box.bottom - box.top) / rows];
    ink.fillStyle = token("sunken");
    ink.fillRect(box.left, box.top, box.right - box.left, box.bottom - box.top);
    for (let row = 0; row < rows; row += 1) {
      for (let column = 0; column < columns; column += 1) {
        const value = real(z[row][column]);
        if (!Number.isFinite(value)) continue;
        const share = high > low ? (value - low) / (high - low) : 1;
        ink.fillStyle = ramp(this.smallerIsBetter ? 1 - share : share);
        ink.fillRect(box.left + column * w, box.bottom - (row + 1) * t, Math.ceil(w), Math.ceil(t));
      }
    }
    this.#labels(ink, w, t);
    const [best, worst] = this.smallerIsBetter ? [low, high] : [high, low];
    const marks = [
      { share: 1, text: number(best, 3) },
      { share: 0, text: number(worst, 3) },
    ];
    if (flat.length) drawRamp(ink, box.right + 16, box.top, marks);
  }

  #labels(ink, w, t) {
    const { box, grid } = this;
    ink.fillStyle = token("muted");
    ink.textBaseline = "middle";
    ink.textAlign = "right";
    const each = (marks, cells, room, draw) => {
      const every = Math.max(1, Math.ceil(marks.length / room));
      marks.forEach(
        (it, at) =>
          at % every === 0 &&
          draw(typeof it === "number" ? number(it, 3) : cut(it), marks.length > cells ? at : at + 0.5),
      );
    };
    each(grid.y, box.rows, 10, (text, at) => ink.fillText(text, box.left - 8, box.bottom - at * t));
    ink.textAlign = "center";
    ink.textBaseline = "top";
    each(grid.x, box.columns, Math.max(2, (box.right - box.left) / 72), (text, at) =>
      ink.fillText(text, box.left + at * w, box.bottom + 8),
    );
    ink.fillStyle = token("faint");
    ink.textAlign = "left";
    ink.fillText(this.yTitle, 8, 4);
    ink.textAlign = "right";
    ink.fillText(this.xTitle, box.right, box.bottom + 28);
  }

  #hover(event) {
    if (!this.box) return;
    const frame = this.canvas.getBoundingClientRect();
    const [px, py] = [event.clientX - frame.left, event.clientY - frame.top];
    const { left, right, top, bottom, rows, columns } = this.box;
    const column = Math.floor(((px - left) / (right - left)) * columns);
    const row = Math.floor(((bottom - py) / (bottom - top)) * rows);
    const value = this.grid.z[row]?.[column];
    this.tip.hidden = value === undefined;
    if (this.tip.hidden) return;
    render(
      this.tip,
      h("strong", value === null ? "No trial here" : number(real(value), 6)),
      h("div", count(this.grid.count?.[row]?.[column] ?? 0, "trial")),
    );
    this.tip.style.left = `${Math.min(px + 14, this.node.clientWidth - this.tip.offsetWidth)}px`;
    this.tip.style.top = `${Math.max(0, py - 20)}px`;
  }
}

const cut = (text) => (String(text).length > 12 ? `${String(text).slice(0, 11)}…` : String(text));
