// Parallel coordinates: one axis per hyperparameter, one line per trial. Dragging along an axis
// keeps the trials that pass there; a title moves its axis (drag, arrows) or turns it round (click).

import { h, render, widget } from "../dom.js";
import { decoded, finite, number } from "../format.js";
import { drawRamp, inkOf } from "./paint.js";
import { ramp, token } from "./palette.js";
import { pictureOf } from "./picture.js";
import { makeScale, padded, ticks } from "./scale.js";

/**
 * @import { Ink } from "./paint.js"
 * @import { Range, Scale, Tick } from "./scale.js"
 *
 * @typedef {object} Axis
 * @property {string} name
 * @property {string} title
 * @property {"linear" | "log" | "category"} kind
 * @property {unknown[]} values one of each trial
 * @property {string[]} [categories]
 * @property {boolean} [isWhole] its values are whole numbers
 *
 * @typedef {{ px: number, places: number[], scale: Scale, ticks: Tick[] }} Measures
 * @typedef {Axis & Measures} Measured an axis that has its place on the canvas
 * @typedef {Record<string, Range>} Brushes by the name of an axis
 */

const TOP = 52;
const FOOT = 20;
const NARROWEST = 110; // pixels from axis to axis
const LEGEND = 72; // pixels for what the colours mean
const IN_SIGHT = 200; // of thousands, the best ones are drawn clearly and the rest is a haze

export class Parallel {
  /**
   * @param {object} how
   * @param {(brushes: Brushes) => unknown} how.onbrush
   * @param {(names: string[]) => unknown} how.onorder
   * @param {(names: string[]) => unknown} how.onflip
   * @param {number} [how.height]
   */
  constructor({ onbrush, onorder, onflip, height = 360 }) {
    this.onbrush = onbrush;
    this.onorder = onorder;
    this.onflip = onflip;
    this.height = height;
    /** @type {Axis[]} */
    this.axes = [];
    /** @type {Measured[]} */
    this.measured = [];
    /** @type {(number | null)[]} */
    this.goodness = [];
    /** @type {Brushes} */
    this.brushes = {};
    /** @type {Set<string>} */
    this.flipped = new Set();
    /** @type {{ share: number, text: string }[]} */
    this.legend = [];
    this.moved = false;
    /** @type {number | null} */
    this.pending = null;
    this.canvas = h("canvas.plot-canvas", {
      role: "img",
      "aria-label": "Parallel coordinates of all trials",
    });
    this.titles = h("div.parallel-titles");
    this.node = widget(h("div.parallel", { style: { height: `${height}px` } }, this.canvas, this.titles));
    this.resizing = new ResizeObserver(() => this.later());
    this.resizing.observe(this.node);
    this.redraw = () => this.later();
    addEventListener("themechange", this.redraw);
    this.#listenToBrush();
    this.#listenToTitles();
  }

  close() {
    this.resizing.disconnect();
    removeEventListener("themechange", this.redraw);
  }

  /**
   * goodness: 0 (worst) to 1 (best) per trial, or null
   * @param {object} what
   * @param {Axis[]} [what.axes]
   * @param {(number | null)[]} [what.goodness]
   * @param {Brushes} [what.brushes]
   * @param {Set<string>} [what.flipped]
   * @param {{ share: number, text: string }[]} [what.legend] what some colours stand for
   */
  set({
    axes = this.axes,
    goodness = this.goodness,
    brushes = this.brushes,
    flipped = this.flipped,
    legend = this.legend,
  }) {
    this.legend = legend;
    this.node.style.minWidth = `${152 + LEGEND + NARROWEST * (axes.length - 1)}px`;
    this.axes = axes;
    this.goodness = goodness;
    this.brushes = brushes;
    this.flipped = flipped;
    this.later();
  }

  later() {
    this.pending ??= requestAnimationFrame(() => this.draw());
  }

  /** @param {number} at */
  kept(at) {
    return this.axes.every((axis) => passes(axis, at, this.brushes));
  }

  /** @param {number} width */
  #measure(width) {
    const step = (width - 152 - (this.legend.length ? LEGEND : 0)) / Math.max(1, this.axes.length - 1);
    this.measured = this.axes.map((axis, at) => {
      const [top, bottom] = this.flipped.has(axis.name)
        ? [this.height - FOOT, TOP]
        : [TOP, this.height - FOOT];
      return { ...axis, px: 64 + at * step, ...measures(axis, [bottom, top]) };
    });
  }

  draw() {
    this.pending = null;
    const width = this.node.clientWidth;
    if (!width) return;
    const dense = window.devicePixelRatio || 1;
    this.canvas.width = width * dense;
    this.canvas.height = this.height * dense;
    this.#paint(inkOf(this.canvas), width, dense);
    render(
      this.titles,
      this.measured.map((axis) => this.#title(axis)),
    );
  }

  /** @param {Measured} axis */
  #title(axis) {
    return h(
      "button.axis-title",
      {
        key: axis.name,
        type: "button",
        "data-axis": axis.name,
        title: `${axis.title}: drag it or press ← → to move the axis, click to reverse it`,
        style: { left: `${axis.px}px` },
        onclick: () => this.#flip(axis),
        onkeydown: (event) => this.#key(event, axis.name),
      },
      axis.title,
      this.flipped.has(axis.name) ? " ↓" : "",
    );
  }

  picture() {
    const width = this.node.clientWidth;
    return pictureOf("Parallel coordinates", width, this.height, (ink, dense) => {
      this.#paint(ink, width, dense);
      ink.fillStyle = token("text");
      ink.textAlign = "center";
      for (const { px, title } of this.measured) ink.fillText(title, px, 22);
    });
  }

  /**
   * @param {Ink} ink
   * @param {number} width
   * @param {number} dense
   */
  #paint(ink, width, dense) {
    ink.setTransform(dense, 0, 0, dense, 0, 0);
    this.#measure(width);
    const trials = (this.axes[0]?.values ?? []).map((_, at) => at);
    const kept = trials.filter((at) => this.kept(at));
    kept.sort((a, b) => (this.goodness[a] ?? -1) - (this.goodness[b] ?? -1)); // the best on top
    ink.lineWidth = 1;
    this.#lines(
      ink,
      trials.filter((at) => !this.kept(at)),
      () => token("line"),
      0.5,
      200,
    );
    const haze = kept.slice(0, Math.max(0, kept.length - IN_SIGHT));
    this.#lines(ink, haze, (at) => this.#colour(at), 0.05, 100);
    ink.lineWidth = 1.5;
    this.#lines(ink, kept.slice(haze.length), (at) => this.#colour(at), 0.75, 1);
    ink.globalAlpha = 1;
    for (const axis of this.measured) this.#axis(ink, axis);
    if (this.legend.length) drawRamp(ink, width - LEGEND, TOP, this.legend);
  }

  /** @param {number} at */
  #colour(at) {
    const share = this.goodness[at];
    return share === null ? token("line-strong") : ramp(share);
  }

  /**
   * Some neighbours in rank share a stroke: ten thousand strokes take seconds, a hundred do not.
   * @param {Ink} ink
   * @param {number[]} trials
   * @param {(at: number) => string} colour
   * @param {number} alpha
   * @param {number} together
   */
  #lines(ink, trials, colour, alpha, together) {
    ink.globalAlpha = alpha;
    for (let from = 0; from < trials.length; from += together) {
      ink.strokeStyle = colour(trials[from]);
      ink.beginPath();
      for (const at of trials.slice(from, from + together)) this.#trace(ink, at);
      ink.stroke();
    }
  }

  /**
   * @param {Ink} ink
   * @param {number} at
   */
  #trace(ink, at) {
    let pen = false;
    for (const { px, places, scale } of this.measured) {
      if (!scale.fits(places[at])) {
        pen = false; // a trial without this value: the line has a gap
        continue;
      }
      if (pen) ink.lineTo(px, scale.pixel(places[at]));
      else ink.moveTo(px, scale.pixel(places[at]));
      pen = true;
    }
  }

  /**
   * @param {Ink} ink
   * @param {Measured} axis
   */
  #axis(ink, { name, px, scale, ticks: marks }) {
    ink.strokeStyle = token("line-strong");
    ink.lineWidth = 1;
    ink.beginPath();
    ink.moveTo(px + 0.5, TOP);
    ink.lineTo(px + 0.5, this.height - FOOT);
    ink.stroke();
    ink.font = `11px ${token("font")}`;
    ink.textBaseline = "middle";
    for (const { value, text } of marks) {
      const y = scale.pixel(value);
      const cut = text.length > 14 ? `${text.slice(0, 13)}…` : text;
      ink.fillStyle = token("surface"); // a plate: no line crosses a label
      ink.fillRect(px + 3, y - 7, ink.measureText(cut).width + 6, 14);
      ink.fillStyle = token("text");
      ink.fillText(cut, px + 6, y);
    }
    const brush = this.brushes[name];
    if (!brush) return;
    const [a, b] = brush.map((it) => scale.pixel(it));
    ink.fillStyle = token("accent");
    ink.globalAlpha = 0.3;
    ink.fillRect(px - 7, Math.min(a, b), 15, Math.abs(a - b));
    ink.globalAlpha = 1;
  }

  /** @param {Axis} axis */
  #flip({ name }) {
    if (this.moved) return;
    const flipped = new Set(this.flipped);
    if (!flipped.delete(name)) flipped.add(name);
    this.set({ flipped });
    this.onflip([...flipped]);
  }

  /**
   * @param {KeyboardEvent} event
   * @param {string} name
   */
  #key(event, name) {
    const step = event.key === "ArrowLeft" ? -1 : event.key === "ArrowRight" ? 1 : 0;
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const at = this.axes.findIndex((one) => one.name === name) + step;
    if (!this.axes[at]) return;
    this.#move(name, at);
    this.onorder(this.axes.map(({ name }) => name));
    this.draw();
    /** @type {HTMLElement} */ (this.titles.children[at]).focus();
  }

  /**
   * @param {string} name
   * @param {number} at
   */
  #move(name, at) {
    const others = this.axes.filter((one) => one.name !== name);
    const moved = this.axes.filter((one) => one.name === name);
    this.axes = [...others.slice(0, at), ...moved, ...others.slice(at)];
    this.later();
  }

  // The list of titles follows the pointer: a title itself changes its place in the document.
  #listenToTitles() {
    /** @type {{ name: string, from: number } | null} */
    let drag = null;
    this.titles.onpointerdown = (event) => {
      const title = event.target instanceof Element && event.target.closest(".axis-title");
      const name = title ? title.getAttribute("data-axis") : null;
      this.moved = false;
      if (name !== null && event.button === 0) drag = { name, from: event.clientX };
    };
    this.titles.onpointermove = (event) => {
      if (!drag || (!this.moved && Math.abs(event.clientX - drag.from) < 6)) return;
      if (!this.moved) this.titles.setPointerCapture(event.pointerId);
      this.moved = true;
      const px = event.clientX - this.node.getBoundingClientRect().left;
      const away = this.measured.map((axis) => Math.abs(axis.px - px));
      const at = away.indexOf(Math.min(...away));
      if (this.axes[at].name !== drag.name) this.#move(drag.name, at);
    };
    this.titles.onpointerup = this.titles.onpointercancel = () => {
      if (drag && this.moved) this.onorder(this.axes.map(({ name }) => name));
      drag = null;
      setTimeout(() => {
        this.moved = false; // after the click that ends a drag: it is no click
      });
    };
  }

  #listenToBrush() {
    /** @type {{ axis: Measured, from: number, moved: boolean } | null} */
    let drag = null;
    /** @param {PointerEvent} event */
    const place = (event) => {
      const frame = this.canvas.getBoundingClientRect();
      return [
        event.clientX - frame.left,
        Math.max(TOP, Math.min(this.height - FOOT, event.clientY - frame.top)),
      ];
    };
    /** @param {number} px */
    const near = (px) => this.measured.find((axis) => Math.abs(axis.px - px) < 14);
    this.canvas.onpointerdown = (event) => {
      const [px, py] = place(event);
      const axis = near(px);
      if (!axis || event.button !== 0) return;
      drag = { axis, from: py, moved: false };
      this.canvas.setPointerCapture(event.pointerId);
      event.preventDefault();
    };
    this.canvas.onpointermove = (event) => {
      const [px, py] = place(event);
      this.canvas.classList.toggle("brushable", Boolean(drag ?? near(px)));
      if (!drag || Math.abs(py - drag.from) < 3) return;
      drag.moved = true;
      const [a, b] = [drag.axis.scale.value(drag.from), drag.axis.scale.value(py)];
      this.brushes = { ...this.brushes, [drag.axis.name]: [Math.min(a, b), Math.max(a, b)] };
      this.later();
    };
    this.canvas.onpointerup = () => {
      if (!drag) return;
      if (!drag.moved) {
        this.brushes = { ...this.brushes };
        delete this.brushes[drag.axis.name];
      }
      drag = null;
      this.later();
      this.onbrush(this.brushes);
    };
  }
}

/**
 * @param {Axis} axis
 * @param {Range} pixels
 * @returns {Omit<Measures, "px">}
 */
function measures({ kind, values, categories = [], isWhole }, pixels) {
  if (kind === "category")
    return {
      places: values.map((it) => categories.indexOf(String(it))),
      scale: makeScale("linear", [-0.5, categories.length - 0.5], pixels),
      ticks: categories.map((text, value) => ({ value, text })).slice(0, 24),
    };
  const places = values.map((it) => (typeof it === "number" ? it : NaN));
  const fine = places.filter((it) => Number.isFinite(it) && (kind !== "log" || it > 0));
  const low = fine.reduce((a, b) => Math.min(a, b), Infinity);
  const high = fine.reduce((a, b) => Math.max(a, b), -Infinity);
  const scale = makeScale(kind, padded(low, high, kind, 0.02) ?? (kind === "log" ? [1, 10] : [0, 1]), pixels);
  return { places, scale, ticks: ticks(scale, 6, isWhole) };
}

/**
 * Whether a trial lies in what was brushed on an axis.
 * @param {Axis} axis
 * @param {number} at
 * @param {Brushes} brushes
 */
export function passes({ name, kind, values, categories = [] }, at, brushes) {
  const brush = brushes[name];
  if (!brush) return true;
  const place = kind === "category" ? categories.indexOf(String(values[at])) : finite(values[at]);
  return place !== null && place >= brush[0] && place <= brush[1];
}

/** @param {Brushes} brushes */
export const brushText = (brushes) =>
  Object.entries(brushes)
    .map(
      ([name, [low, high]]) =>
        `${encodeURIComponent(name)}:${Number(low.toPrecision(6))}~${Number(high.toPrecision(6))}`,
    )
    .join(";");

/** @param {string | undefined} text */
export function readBrushes(text) {
  /** @type {Brushes} */
  const brushes = {};
  for (const part of (text ?? "").split(";").filter(Boolean)) {
    const cut = part.lastIndexOf(":");
    const [low, high, ...more] = part
      .slice(cut + 1)
      .split("~")
      .map(Number);
    if (cut > 0 && Number.isFinite(low) && Number.isFinite(high) && !more.length)
      brushes[decoded(part.slice(0, cut))] = [low, high];
  }
  return brushes;
}

/**
 * @param {Axis[]} axes
 * @param {Brushes} brushes
 */
export const brushSentence = (axes, brushes) =>
  Object.entries(brushes)
    .map(([name, [low, high]]) => {
      const axis = axes.find((one) => one.name === name);
      if (axis?.kind === "category")
        return `${name}: ${axis.categories?.filter((_, at) => at >= low && at <= high).join(", ")}`;
      return `${name}: ${number(low, 3)} … ${number(high, 3)}`;
    })
    .join(" · ");
