// Two hyperparameters against each other: the best value in each cell, and how many trials it had.

import { h, render, widget } from "../dom.js";
import { count, finite, number, real } from "../format.js";
import { drawRamp, inkOf } from "./paint.js";
import { ramp, token } from "./palette.js";
import { pictureOf } from "./picture.js";

/**
 * @import { Box } from "./plot.js"
 * @import { Ink } from "./paint.js"
 *
 * @typedef {object} Shown
 * @property {Api.ContourJson} grid
 * @property {string} xTitle
 * @property {string} yTitle
 * @property {boolean} smallerIsBetter
 */

export class Heat {
  /** @param {{ label: string, height?: number }} how */
  constructor({ label, height = 420 }) {
    this.label = label;
    this.height = height;
    /** @type {Shown | null} */
    this.shown = null;
    /** @type {(Box & { rows: number, columns: number }) | null} */
    this.box = null;
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

  /** @param {Shown} shown */
  set(shown) {
    this.shown = shown;
    this.node.dataset.ready = "";
    this.draw();
  }

  draw() {
    const width = this.node.clientWidth;
    if (!width) return;
    const dense = window.devicePixelRatio || 1;
    this.canvas.width = width * dense;
    this.canvas.height = this.height * dense;
    this.#paint(inkOf(this.canvas), width, dense);
  }

  picture() {
    const width = this.node.clientWidth;
    return pictureOf(this.label, width, this.height, (ink, dense) => this.#paint(ink, width, dense));
  }

  /**
   * @param {Ink} ink
   * @param {number} width
   * @param {number} dense
   */
  #paint(ink, width, dense) {
    if (!this.shown) return;
    ink.setTransform(dense, 0, 0, dense, 0, 0);
    ink.font = `11px ${token("font")}`;
    const { grid, smallerIsBetter } = this.shown;
    const { z } = grid;
    const rows = z.length;
    const columns = z[0]?.length ?? 0;
    const flat = z
      .flat()
      .map(finite)
      .filter((it) => it !== null);
    const [low, high] = [Math.min(...flat), Math.max(...flat)];
    const box = { left: 84, right: width - 96, top: 24, bottom: this.height - 44, rows, columns };
    this.box = box;
    const [w, t] = [(box.right - box.left) / columns, (box.bottom - box.top) / rows];
    ink.fillStyle = token("sunken");
    ink.fillRect(box.left, box.top, box.right - box.left, box.bottom - box.top);
    for (let row = 0; row < rows; row += 1) {
      for (let column = 0; column < columns; column += 1) {
        const value = finite(z[row][column]);
        if (value === null) continue;
        const share = high > low ? (value - low) / (high - low) : 1;
        ink.fillStyle = ramp(smallerIsBetter ? 1 - share : share);
        ink.fillRect(box.left + column * w, box.bottom - (row + 1) * t, Math.ceil(w), Math.ceil(t));
      }
    }
    this.#labels(ink, this.shown, box, w, t);
    const [best, worst] = smallerIsBetter ? [low, high] : [high, low];
    const marks = [
      { share: 1, text: number(best, 3) },
      { share: 0, text: number(worst, 3) },
    ];
    if (flat.length) drawRamp(ink, box.right + 16, box.top, marks);
  }

  /**
   * @param {Ink} ink
   * @param {Shown} shown
   * @param {Box & { rows: number, columns: number }} box
   * @param {number} w
   * @param {number} t
   */
  #labels(ink, { grid, xTitle, yTitle }, box, w, t) {
    ink.fillStyle = token("muted");
    ink.textBaseline = "middle";
    ink.textAlign = "right";
    /**
     * @param {unknown[]} marks
     * @param {number} cells
     * @param {number} room
     * @param {(text: string, at: number) => void} draw
     */
    const each = (marks, cells, room, draw) => {
      const every = Math.max(1, Math.ceil(marks.length / room));
      for (let at = 0; at < marks.length; at += every) {
        const it = marks[at];
        draw(typeof it === "number" ? number(it, 3) : cut(String(it)), marks.length > cells ? at : at + 0.5);
      }
    };
    each(grid.y, box.rows, 10, (text, at) => ink.fillText(text, box.left - 8, box.bottom - at * t));
    ink.textAlign = "center";
    ink.textBaseline = "top";
    each(grid.x, box.columns, Math.max(2, (box.right - box.left) / 72), (text, at) =>
      ink.fillText(text, box.left + at * w, box.bottom + 8),
    );
    ink.fillStyle = token("faint");
    ink.textAlign = "left";
    ink.fillText(yTitle, 8, 4);
    ink.textAlign = "right";
    ink.fillText(xTitle, box.right, box.bottom + 28);
  }

  /** @param {PointerEvent} event */
  #hover(event) {
    if (!this.box || !this.shown) return;
    const { grid } = this.shown;
    const frame = this.canvas.getBoundingClientRect();
    const [px, py] = [event.clientX - frame.left, event.clientY - frame.top];
    const { left, right, top, bottom, rows, columns } = this.box;
    const column = Math.floor(((px - left) / (right - left)) * columns);
    const row = Math.floor(((bottom - py) / (bottom - top)) * rows);
    const value = grid.z[row]?.[column];
    this.tip.hidden = value === undefined;
    if (value === undefined) return;
    render(
      this.tip,
      h("strong", value === null ? "No trial here" : number(real(value), 6)),
      h("div", count(grid.count[row][column], "trial")),
    );
    this.tip.style.left = `${Math.min(px + 14, this.node.clientWidth - this.tip.offsetWidth)}px`;
    this.tip.style.top = `${Math.max(0, py - 20)}px`;
  }
}

/** @param {string} text */
const cut = (text) => (text.length > 12 ? `${text.slice(0, 11)}…` : text);
