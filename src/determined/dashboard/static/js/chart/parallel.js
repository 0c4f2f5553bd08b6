// Parallel coordinates: one axis per hyperparameter, one line per trial. Dragging along an axis
// keeps the trials that pass there; a title moves its axis (drag, arrows) or turns it round (click).

import { h, render, widget } from "../dom.js";
import { decoded, number } from "../format.js";
import { ramp, token } from "./palette.js";
import { pictureOf } from "./picture.js";
import { makeScale, padded, ticks } from "./scale.js";

const TOP = 52;
const FOOT = 20;
const IN_SIGHT = 200; // of thousands, the best ones are drawn clearly and the rest is a haze

export class Parallel {
  // axes: [{name, title, kind: linear|log|category, values: [...], categories}]; brushes: {name: [low, high]}
  // onbrush(brushes), onorder(names), onflip(names): what the reader did
  constructor({ onbrush, onorder, onflip, height = 360 }) {
    Object.assign(this, { onbrush, onorder, onflip, axes: [], brushes: {}, flipped: new Set(), height });
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

  // goodness: 0 (worst) to 1 (best) per trial, or null
  set({ axes = this.axes, goodness = this.goodness, brushes = this.brushes, flipped = this.flipped }) {
    Object.assign(this, { axes, goodness, brushes, flipped });
    this.later();
  }

  later() {
    this.pending ??= requestAnimationFrame(() => this.draw());
  }

  kept(at) {
    return this.axes.every(({ name, places }) => {
      const brush = this.brushes[name];
      return !brush || (places[at] >= brush[0] && places[at] <= brush[1]);
    });
  }

  #measure(width) {
    const step = (width - 152) / Math.max(1, this.axes.length - 1);
    this.axes.forEach((axis, at) => {
      axis.px = 64 + at * step;
      const [top, bottom] = this.flipped.has(axis.name)
        ? [this.height - FOOT, TOP]
        : [TOP, this.height - FOOT];
      if (axis.kind === "category") {
        axis.places = axis.values.map((it) => axis.categories.indexOf(String(it)));
        axis.scale = makeScale("linear", [-0.5, axis.categories.length - 0.5], [bottom, top]);
        axis.ticks = axis.categories.map((text, value) => ({ value, text })).slice(0, 24);
      } else {
        axis.places = axis.values.map((it) => (typeof it === "number" ? it : NaN));
        const fine = axis.places.filter((it) => Number.isFinite(it) && (axis.kind !== "log" || it > 0));
        const low = fine.reduce((a, b) => Math.min(a, b), Infinity);
        const high = fine.reduce((a, b) => Math.max(a, b), -Infinity);
        axis.scale = makeScale(axis.kind, padded(low, high, axis.kind, 0.02) ?? [0, 1], [bottom, top]);
        axis.ticks = ticks(axis.scale, 6);
      }
    });
  }

  draw() {
    this.pending = null;
    const width = this.node.clientWidth;
    if (!width) return;
    const dense = window.devicePixelRatio || 1;
    this.canvas.width = width * dense;
    this.canvas.height = this.height * dense;
    this.#paint(this.canvas.getContext("2d"), width, dense);
    render(
      this.titles,
      this.axes.map((axis) => this.#title(axis)),
    );
  }

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
        onkeydown: (event) => this.#key(event, axis),
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
      for (const { px, title } of this.axes) ink.fillText(title, px, 22);
    });
  }

  #paint(ink, width, dense) {
    ink.setTransform(dense, 0, 0, dense, 0, 0);
    this.#measure(width);
    const shown = [[], []];
    for (let at = 0; at < (this.axes[0]?.values.length ?? 0); at += 1) shown[this.kept(at) ? 1 : 0].push(at);
    shown[1].sort((a, b) => (this.goodness[a] ?? -1) - (this.goodness[b] ?? -1)); // the best on top
    ink.lineWidth = 1;
    this.#lines(ink, shown[0], () => token("line"), 0.5, 200);
    const haze = shown[1].slice(0, Math.max(0, shown[1].length - IN_SIGHT));
    this.#lines(ink, haze, (at) => this.#colour(at), 0.05, 100);
    ink.lineWidth = 1.5;
    this.#lines(ink, shown[1].slice(haze.length), (at) => this.#colour(at), 0.75, 1);
    ink.globalAlpha = 1;
    for (const axis of this.axes) this.#axis(ink, axis);
  }

  #colour(at) {
    return this.goodness[at] === null ? token("line-strong") : ramp(this.goodness[at]);
  }

  // Some neighbours in rank share a stroke: ten thousand strokes take seconds, a hundred do not.
  #lines(ink, trials, colour, alpha, together) {
    ink.globalAlpha = alpha;
    for (let from = 0; from < trials.length; from += together) {
      ink.strokeStyle = colour(trials[from]);
      ink.beginPath();
      for (const at of trials.slice(from, from + together)) this.#trace(ink, at);
      ink.stroke();
    }
  }

  #trace(ink, at) {
    let pen = false;
    for (const { px, places, scale } of this.axes) {
      if (!scale.fits(places[at])) {
        pen = false; // a trial without this value: the line has a gap
        continue;
      }
      if (pen) ink.lineTo(px, scale.pixel(places[at]));
      else ink.moveTo(px, scale.pixel(places[at]));
      pen = true;
    }
  }

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
      ink.lineWidth = 3;
      ink.strokeStyle = token("surface");
      ink.strokeText(cut, px + 6, y);
      ink.fillStyle = token("muted");
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

  #flip({ name }) {
    if (this.moved) return;
    const flipped = new Set(this.flipped);
    if (!flipped.delete(name)) flipped.add(name);
    this.set({ flipped });
    this.onflip([...flipped]);
  }

  #key(event, axis) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const at = this.axes.indexOf(axis) + step;
    if (!this.axes[at]) return;
    this.#move(axis, at);
    this.onorder(this.axes.map(({ name }) => name));
    this.draw();
    this.titles.children[at].focus();
  }

  #move(axis, at) {
    this.axes = this.axes.filter((one) => one !== axis);
    this.axes.splice(at, 0, axis);
    this.later();
  }

  // The list of titles follows the pointer: a title itself changes its place in the document.
  #listenToTitles() {
    let drag = null;
    this.titles.onpointerdown = (event) => {
      const title = event.target.closest(".axis-title");
      const axis = title && this.axes.find((one) => one.name === title.dataset.axis);
      this.moved = false;
      if (axis && event.button === 0) drag = { axis, from: event.clientX };
    };
    this.titles.onpointermove = (event) => {
      if (!drag || (!this.moved && Math.abs(event.clientX - drag.from) < 6)) return;
      if (!this.moved) this.titles.setPointerCapture(event.pointerId);
      this.moved = true;
      const px = event.clientX - this.node.getBoundingClientRect().left;
      const near = (axis) => Math.abs(axis.px - px);
      const at = this.axes.reduce((best, axis, i) => (near(axis) < near(this.axes[best]) ? i : best), 0);
      if (this.axes[at] !== drag.axis) this.#move(drag.axis, at);
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
    let drag = null;
    const place = (event) => {
      const frame = this.canvas.getBoundingClientRect();
      return [
        event.clientX - frame.left,
        Math.max(TOP, Math.min(this.height - FOOT, event.clientY - frame.top)),
      ];
    };
    const near = (px) => this.axes.find((axis) => Math.abs(axis.px - px) < 14);
    this.canvas.onpointerdown = (event) => {
      const [px, py] = place(event);
      const axis = near(px);
      if (!axis || event.button !== 0) return;
      drag = { axis, from: py };
      this.canvas.setPointerCapture(event.pointerId);
      event.preventDefault();
    };
    this.canvas.onpointermove = (event) => {
      const [px, py] = place(event);
      this.canvas.classList.toggle("brushable", Boolean(drag ?? near(px)));
      if (!drag || Math.abs(py - drag.from) < 3) return;
      drag.moved = true;
      const ends = [drag.axis.scale.value(drag.from), drag.axis.scale.value(py)].sort((a, b) => a - b);
      this.brushes = { ...this.brushes, [drag.axis.name]: ends };
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

export const brushText = (brushes) =>
  Object.entries(brushes)
    .map(
      ([name, [low, high]]) =>
        `${encodeURIComponent(name)}:${Number(low.toPrecision(6))}~${Number(high.toPrecision(6))}`,
    )
    .join(";");

export function readBrushes(text) {
  const brushes = {};
  for (const part of (text ?? "").split(";").filter(Boolean)) {
    const cut = part.lastIndexOf(":");
    const ends = part
      .slice(cut + 1)
      .split("~")
      .map(Number);
    if (cut > 0 && ends.length === 2 && ends.every(Number.isFinite))
      brushes[decoded(part.slice(0, cut))] = ends;
  }
  return brushes;
}

export const brushSentence = (axes, brushes) =>
  Object.entries(brushes)
    .map(([name, [low, high]]) => {
      const axis = axes.find((one) => one.name === name);
      if (axis?.kind === "category")
        return `${name}: ${axis.categories.filter((_, at) => at >= low && at <= high).join(", ")}`;
      return `${name}: ${number(low, 3)} … ${number(high, 3)}`;
    })
    .join(" · ");
