// A chart of lines or dots on a canvas: axes, bands, zoom, a cursor for mouse and keyboard.

import { h, render, widget } from "../dom.js";
import { drawAxes, drawCursor, drawNothing, drawSelection, drawSeries, inkOf } from "./paint.js";
import { token } from "./palette.js";
import { pictureOf } from "./picture.js";
import { makeScale, padded, ticks } from "./scale.js";
import { shownY } from "./series.js";

/**
 * @import { Kind, Range, Scale, Tick } from "./scale.js"
 * @import { Column } from "./series.js"
 * @import { Ink } from "./paint.js"
 *
 * @typedef {object} PlotSeries
 * @property {string} key
 * @property {string} name
 * @property {Column} x
 * @property {Column} y
 * @property {Column} [lo]
 * @property {Column} [hi]
 * @property {Column | null} [smooth]
 * @property {string} color
 * @property {number[]} [dash]
 * @property {number} [width]
 * @property {boolean} [mute] cannot be pointed at
 * @property {boolean} [dots] instead of a line
 * @property {string[]} [colors] of each dot
 * @property {string} [ring] around each dot
 * @property {number} [radius]
 *
 * @typedef {object} Side
 * @property {Kind} kind
 * @property {string} title
 * @property {Range | null} range null: what the series take
 * @property {Range | null} [whole] what leaving a zoom shows
 * @property {string[]} [categories] names of the values 0, 1, 2 …
 * @property {boolean} [isWhole] its values are whole numbers
 * @property {boolean} [byMeans] fit the means, not the bands
 *
 * @typedef {{ left: number, right: number, top: number, bottom: number }} Box
 * @typedef {{ x: Range, y: Range | null } | null} Zoom
 * @typedef {{ from: Range, to: Range, moved: boolean }} Drag
 * @typedef {Pick<Plot, "box" | "x" | "y" | "xScale" | "yScale" | "xTicks" | "yTicks" | "nothing">} Frame
 */

/** @type {Range} */
const UNIT = [0, 1];
/** @type {Range} */
const DECADES = [0.1, 10];

/** @template {PlotSeries} [Series=PlotSeries] what is drawn, with whatever else its owner knows of it */
export class Plot {
  /**
   * @param {object} how
   * @param {string} how.label
   * @param {number} [how.height]
   * @param {(series: Series, at: number) => Ui.Child} how.describe what the label at a point says
   * @param {((zoom: Zoom) => unknown) | null} [how.onzoom]
   * @param {((series: Series, at: number) => unknown) | null} [how.onpick]
   * @param {((ink: Ink, plot: Frame) => unknown) | null} [how.ground] draws what lies under the series
   * @param {number} [how.margin] pixels at the right, for the key of the ground
   */
  constructor({ label, height = 320, describe, onzoom = null, onpick = null, ground = null, margin = 16 }) {
    this.label = label;
    this.describe = describe;
    this.onzoom = onzoom;
    this.onpick = onpick;
    this.ground = ground;
    this.margin = margin;
    this.canvas = h("canvas.plot-canvas", { tabindex: 0, role: "img", "aria-label": label });
    this.tip = h("div.plot-tip", { hidden: true });
    this.node = widget(h("div.plot", { style: { height: `${height}px` } }, this.canvas, this.tip));
    /** @type {Series[]} */
    this.series = [];
    /** @type {Side} */
    this.x = { kind: "linear", title: "", range: null };
    /** @type {Side} */
    this.y = { kind: "linear", title: "", range: null };
    this.nothing = "";
    /** @type {{ series: Series, at: number } | null} */
    this.cursor = null;
    /** @type {string | null} */
    this.lit = null;
    /** @type {Drag | null} */
    this.drag = null;
    this.xScale = makeScale("linear", [0, 1], [0, 1]);
    this.yScale = makeScale("linear", [0, 1], [1, 0]);
    /** @type {Tick[]} */
    this.xTicks = [];
    /** @type {Tick[]} */
    this.yTicks = [];
    /** @type {Box} */
    this.box = { left: 0, right: 1, top: 0, bottom: 1 };
    /** @type {number | null} */
    this.pending = null;
    this.redraw = () => this.later();
    addEventListener("themechange", this.redraw);
    this.resizing = new ResizeObserver(() => this.later());
    this.resizing.observe(this.node);
    this.#listen();
  }

  /** @param {{ series?: Series[], x?: Side, y?: Side, nothing?: string }} what */
  set({ series = this.series, x = this.x, y = this.y, nothing = "" }) {
    this.node.dataset.ready = "";
    this.series = series;
    this.x = x;
    this.y = y;
    this.nothing = nothing;
    if (this.cursor) {
      const { series: old, at } = this.cursor;
      const kept = series.find((one) => one.key === old.key);
      this.cursor = kept && at < kept.x.length ? { series: kept, at } : null;
    }
    this.later();
  }

  close() {
    this.resizing.disconnect();
    if (this.pending !== null) cancelAnimationFrame(this.pending);
    removeEventListener("themechange", this.redraw);
  }

  later() {
    this.pending ??= requestAnimationFrame(() => this.draw());
  }

  /** @param {string | null} key */
  light(key) {
    this.lit = key;
    this.later();
  }

  draw() {
    this.pending = null;
    const { clientWidth: width, clientHeight: height } = this.node;
    if (!width || !height || this.node.dataset.ready === undefined) return; // axes without data mislead
    const dense = window.devicePixelRatio || 1;
    if (
      this.canvas.width !== Math.round(width * dense) ||
      this.canvas.height !== Math.round(height * dense)
    ) {
      this.canvas.width = Math.round(width * dense);
      this.canvas.height = Math.round(height * dense);
    }
    this.paint(inkOf(this.canvas), width, height, dense);
    this.#label();
  }

  /**
   * @param {Ink} ink
   * @param {number} width
   * @param {number} height
   * @param {number} dense
   */
  paint(ink, width, height, dense) {
    ink.setTransform(dense, 0, 0, dense, 0, 0);
    ink.clearRect(0, 0, width, height);
    ink.font = `11px ${token("font")}`;
    this.#measure(ink, width, height);
    drawAxes(ink, this);
    this.ground?.(ink, this);
    if (this.nothing && !this.series.some((one) => one.x.length)) drawNothing(ink, this);
    ink.save();
    ink.beginPath();
    ink.rect(
      this.box.left - 5,
      this.box.top - 5,
      this.box.right - this.box.left + 10,
      this.box.bottom - this.box.top + 7,
    );
    ink.clip();
    const lit = this.lit ?? this.cursor?.series.key ?? null;
    const order =
      lit === null
        ? this.series
        : [...this.series.filter((one) => one.key !== lit), ...this.series.filter((one) => one.key === lit)];
    for (const one of order) drawSeries(ink, this, one, lit !== null && one.key !== lit);
    ink.restore();
    if (this.cursor) drawCursor(ink, this, this.cursor);
    if (this.drag?.moved) drawSelection(ink, this, this.drag);
  }

  /**
   * @param {Ink} ink
   * @param {number} width
   * @param {number} height
   */
  #measure(ink, width, height) {
    const xRange =
      shownRange(this.x) ??
      this.#extent((one) => [one.x], this.x.kind, null, 0) ??
      (this.x.kind === "log" ? DECADES : UNIT);
    const yRange =
      shownRange(this.y) ??
      this.#extent(
        (one) => (this.y.byMeans ? [one.smooth ?? one.y] : [one.lo ?? one.y, one.hi ?? one.y]),
        this.y.kind,
        xRange,
        0.05,
      ) ??
      (this.y.kind === "log" ? DECADES : UNIT);
    const top = this.y.title ? 24 : 10;
    const bottom = height - (this.x.title ? 38 : 24);
    const yScale = makeScale(this.y.kind, yRange, [bottom, top]);
    const yTicks = marks(this.y, yScale, (bottom - top) / (height < 250 ? 36 : 48));
    const left = 14 + Math.max(20, ...yTicks.map((one) => ink.measureText(one.text).width));
    const right = width - this.margin;
    const xScale = makeScale(this.x.kind, xRange, [left, right]);
    this.xScale = xScale;
    this.yScale = yScale;
    this.yTicks = yTicks;
    this.xTicks = marks(this.x, xScale, (right - left) / 96);
    this.box = { left, right, top, bottom };
  }

  /**
   * @param {(one: Series) => Column[]} columns
   * @param {Kind} kind
   * @param {Range | null} within
   * @param {number} air
   */
  #extent(columns, kind, within, air) {
    let [low, high] = [Infinity, -Infinity];
    for (const one of this.series) {
      for (const column of columns(one)) {
        for (let at = 0; at < column.length; at += 1) {
          const value = column[at];
          if (!Number.isFinite(value) || (kind === "log" && value <= 0)) continue;
          if (within && (one.x[at] < within[0] || one.x[at] > within[1])) continue;
          if (value < low) low = value;
          if (value > high) high = value;
        }
      }
    }
    return padded(low, high, kind, air);
  }

  /**
   * The point nearest to a place, and how far it is.
   * @param {number} px
   * @param {number} py
   */
  nearest(px, py) {
    /** @type {{ series: Series, at: number, away: number } | null} */
    let found = null;
    for (const series of this.series) {
      if (series.mute) continue;
      const middle = series.dots ? 0 : search(series.x, this.xScale.value(px));
      const first = series.dots ? 0 : Math.max(0, middle - 3);
      const end = series.dots ? series.x.length : Math.min(series.x.length, middle + 4);
      for (let at = first; at < end; at += 1) {
        if (!(this.xScale.fits(series.x[at]) && this.yScale.fits(shownY(series, at)))) continue;
        const away = Math.hypot(
          this.xScale.pixel(series.x[at]) - px,
          this.yScale.pixel(shownY(series, at)) - py,
        );
        if (!found || away < found.away) found = { series, at, away };
      }
    }
    return found;
  }

  #listen() {
    /**
     * @param {PointerEvent} event
     * @returns {Range}
     */
    const place = (event) => {
      const frame = this.canvas.getBoundingClientRect();
      return [event.clientX - frame.left, event.clientY - frame.top];
    };
    this.canvas.onpointermove = (event) => {
      const [px, py] = place(event);
      if (this.drag) {
        this.drag.to = [px, py];
        this.drag.moved ||= Math.abs(px - this.drag.from[0]) > 5;
      } else {
        const found = this.nearest(px, py);
        this.cursor = found && found.away < 60 ? found : null;
        this.canvas.classList.toggle("pickable", Boolean(this.onpick && this.cursor));
      }
      this.later();
    };
    this.canvas.onpointerleave = () => {
      if (this.drag) return;
      this.cursor = null;
      this.later();
    };
    this.canvas.onpointerdown = (event) => {
      if (event.button !== 0 || event.pointerType === "touch") return;
      this.canvas.setPointerCapture(event.pointerId);
      this.drag = { from: place(event), to: place(event), moved: false };
    };
    this.canvas.onpointerup = () => {
      const drag = this.drag;
      this.drag = null;
      if (drag?.moved) this.#zoomTo(drag);
      else if (drag && this.cursor) this.onpick?.(this.cursor.series, this.cursor.at);
      this.later();
    };
    this.canvas.ondblclick = () => this.onzoom?.(null);
    this.canvas.onkeydown = (event) => this.#key(event);
    this.canvas.onblur = () => {
      this.cursor = null;
      this.later();
    };
  }

  /** @param {Drag} drag */
  #zoomTo({ from, to }) {
    if (!this.onzoom) return;
    const { left, right, top, bottom } = this.box;
    /** @type {(it: number, low: number, high: number) => number} */
    const inside = (it, low, high) => Math.max(low, Math.min(high, it));
    const x = (/** @type {number} */ px) => this.xScale.value(inside(px, left, right));
    const y = (/** @type {number} */ py) => this.yScale.value(inside(py, top, bottom));
    const tall = Math.abs(from[1] - to[1]) > 24;
    this.onzoom({
      x: [x(Math.min(from[0], to[0])), x(Math.max(from[0], to[0]))],
      y: tall ? [y(Math.max(from[1], to[1])), y(Math.min(from[1], to[1]))] : null,
    });
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const series = this.cursor?.series ?? this.series.find((one) => !one.mute);
    if (!series) return;
    const step = event.key === "ArrowLeft" ? -1 : event.key === "ArrowRight" ? 1 : 0;
    const other = event.key === "ArrowUp" ? -1 : event.key === "ArrowDown" ? 1 : 0;
    if (step) {
      const at = this.cursor ? this.cursor.at + step : 0;
      this.cursor = { series, at: Math.max(0, Math.min(series.x.length - 1, at)) };
    } else if (other) {
      const shown = this.series.filter((one) => !one.mute && one.x.length);
      const next = shown[(shown.indexOf(series) + other + shown.length) % shown.length];
      this.cursor = { series: next, at: Math.min(this.cursor?.at ?? 0, next.x.length - 1) };
    } else if (event.key === "Enter" && this.cursor) this.onpick?.(this.cursor.series, this.cursor.at);
    else if (event.key === "Escape") this.onzoom?.(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
    this.later();
  }

  #label() {
    this.tip.hidden = !this.cursor;
    if (!this.cursor) return;
    const { series, at } = this.cursor;
    render(this.tip, this.describe(series, at));
    const px = this.xScale.pixel(series.x[at]);
    const py = this.yScale.pixel(shownY(series, at));
    const { offsetWidth: width, offsetHeight: height } = this.tip;
    const left = px + 14 + width > this.node.clientWidth ? px - 14 - width : px + 14;
    this.tip.style.left = `${Math.max(0, Math.min(left, this.node.clientWidth - width))}px`;
    this.tip.style.top = `${Math.max(0, Math.min(py - height / 2, this.node.clientHeight - height))}px`;
  }

  picture() {
    const { clientWidth: width, clientHeight: height } = this.node;
    const { cursor } = this;
    this.cursor = null;
    const made = pictureOf(this.label, width, height, (ink, dense) => this.paint(ink, width, height, dense));
    this.cursor = cursor;
    return made;
  }
}

/**
 * The range that was asked for; null if the axis cannot show it: 0 has no place on a log axis.
 * @param {Side} side
 */
export const shownRange = ({ kind, range }) => (range && kind === "log" && !(range[0] > 0) ? null : range);

/**
 * @param {Side} side
 * @param {Scale} scale
 * @param {number} wanted
 * @returns {Tick[]}
 */
function marks({ categories, isWhole }, scale, wanted) {
  return categories
    ? categories.map((text, value) => ({ value, text }))
    : ticks(scale, Math.max(2, wanted), isWhole);
}

/**
 * @param {Column} sorted
 * @param {number} value
 */
function search(sorted, value) {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}
