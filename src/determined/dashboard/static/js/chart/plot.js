// A chart of lines or dots on a canvas: axes, bands, zoom, a cursor for mouse and keyboard.

import { h, render, widget } from "../dom.js";
import { token } from "./palette.js";
import { pictureOf } from "./picture.js";
import { drawAxes, drawCursor, drawNothing, drawSelection, drawSeries } from "./paint.js";
import { makeScale, padded, ticks } from "./scale.js";
import { shownY } from "./series.js";

export class Plot {
  // describe(series, at) -> nodes of the label; onzoom({x: [from, to], y}|null); onpick(series);
  // ground(ink, plot) draws what lies under the series, with `margin` pixels at the right for its key
  constructor({ label, height = 320, describe, onzoom = null, onpick = null, ground = null, margin = 16 }) {
    Object.assign(this, { label, describe, onzoom, onpick, ground, margin });
    this.canvas = h("canvas.plot-canvas", { tabindex: 0, role: "img", "aria-label": label });
    this.tip = h("div.plot-tip", { hidden: true });
    this.node = widget(h("div.plot", { style: { height: `${height}px` } }, this.canvas, this.tip));
    this.series = [];
    this.x = { kind: "linear", title: "", range: null };
    this.y = { kind: "linear", title: "", range: null };
    this.cursor = null;
    this.lit = null;
    this.drag = null;
    this.resizing = new ResizeObserver(() => this.later());
    this.resizing.observe(this.node);
    this.#listen();
  }

  set({ series = this.series, x = this.x, y = this.y, nothing = "" }) {
    Object.assign(this, { series, x, y, nothing });
    if (this.cursor) {
      const kept = series.find((one) => one.key === this.cursor.series.key);
      this.cursor = kept && this.cursor.at < kept.x.length ? { series: kept, at: this.cursor.at } : null;
    }
    this.later();
  }

  close() {
    this.resizing.disconnect();
    cancelAnimationFrame(this.pending);
    removeEventListener("themechange", this.redraw);
  }

  later() {
    this.pending ??= requestAnimationFrame(() => this.draw());
  }

  light(key) {
    this.lit = key;
    this.later();
  }

  draw() {
    this.pending = null;
    const { clientWidth: width, clientHeight: height } = this.node;
    if (!width || !height) return;
    const dense = window.devicePixelRatio || 1;
    if (
      this.canvas.width !== Math.round(width * dense) ||
      this.canvas.height !== Math.round(height * dense)
    ) {
      this.canvas.width = Math.round(width * dense);
      this.canvas.height = Math.round(height * dense);
    }
    this.paint(this.canvas.getContext("2d"), width, height, dense);
    this.#label();
  }

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
    if (this.cursor) drawCursor(ink, this);
    if (this.drag?.moved) drawSelection(ink, this);
  }

  #measure(ink, width, height) {
    const xRange = this.x.range ?? this.#extent((one) => [one.x], this.x.kind, null, 0) ?? [0, 1];
    const yRange =
      this.y.range ??
      this.#extent(
        (one) => (this.y.byMeans ? [one.smooth ?? one.y] : [one.lo ?? one.y, one.hi ?? one.y]),
        this.y.kind,
        xRange,
        0.05,
      ) ??
      (this.y.kind === "log" ? [0.1, 10] : [0, 1]);
    const top = this.y.title ? 24 : 10;
    const bottom = height - (this.x.title ? 38 : 24);
    const yScale = makeScale(this.y.kind, yRange, [bottom, top]);
    const yTicks = marks(this.y, yScale, (bottom - top) / (height < 250 ? 36 : 48));
    const left = 14 + Math.max(20, ...yTicks.map((one) => ink.measureText(one.text).width));
    const right = width - this.margin;
    const xScale = makeScale(this.x.kind, xRange, [left, right]);
    Object.assign(this, {
      xScale,
      yScale,
      yTicks,
      xTicks: marks(this.x, xScale, (right - left) / 96),
      box: { left, right, top, bottom },
    });
  }

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

  // The point nearest to a place, and how far it is.
  nearest(px, py) {
    let found = null;
    for (const series of this.series) {
      if (series.mute) continue;
      const consider = (at) => {
        if (!(this.xScale.fits(series.x[at]) && this.yScale.fits(shownY(series, at)))) return;
        const away = Math.hypot(
          this.xScale.pixel(series.x[at]) - px,
          this.yScale.pixel(shownY(series, at)) - py,
        );
        if (!found || away < found.away) found = { series, at, away };
      };
      if (series.dots) for (let at = 0; at < series.x.length; at += 1) consider(at);
      else {
        const middle = search(series.x, this.xScale.value(px));
        for (let at = Math.max(0, middle - 3); at < Math.min(series.x.length, middle + 4); at += 1)
          consider(at);
      }
    }
    return found;
  }

  #listen() {
    const place = (event) => {
      const frame = this.canvas.getBoundingClientRect();
      return [event.clientX - frame.left, event.clientY - frame.top];
    };
    this.canvas.onpointermove = (event) => {
      if (!this.xScale) return;
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
    this.redraw = () => this.later();
    addEventListener("themechange", this.redraw);
  }

  #zoomTo({ from, to }) {
    if (!this.onzoom) return;
    const { left, right, top, bottom } = this.box;
    const inside = (it, low, high) => Math.max(low, Math.min(high, it));
    const xs = [from[0], to[0]].sort((a, b) => a - b).map((px) => this.xScale.value(inside(px, left, right)));
    const tall = Math.abs(from[1] - to[1]) > 24;
    const ys = [from[1], to[1]].sort((a, b) => b - a).map((py) => this.yScale.value(inside(py, top, bottom)));
    this.onzoom({ x: xs, y: tall ? ys : null });
  }

  #key(event) {
    const series = this.cursor?.series ?? this.series.find((one) => !one.mute);
    if (!series) return;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const other = { ArrowUp: -1, ArrowDown: 1 }[event.key];
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
    this.tip.hidden = !this.cursor || !this.describe;
    if (this.tip.hidden) return;
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

function marks({ categories }, scale, wanted) {
  return categories ? categories.map((text, value) => ({ value, text })) : ticks(scale, Math.max(2, wanted));
}

function search(sorted, value) {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}
