// Many small charts with one zoom; each asks for its data when it comes in sight.

import { zoomInAddress } from "../chart/controls.js";
import { CurveChart } from "../chart/curves.js";
import { h, hold, render, widget } from "../dom.js";

/**
 * @import { CurveOptions, Line } from "../chart/curves.js"
 * @import { Points } from "../live.js"
 *
 * @typedef {object} Entry
 * @property {CurveChart} chart
 * @property {string} want what it is to show, as a text
 * @property {Line[]} lines
 * @property {CurveOptions} options
 * @property {boolean} stale
 */

export class ChartGrid {
  /** @param {{ onpick?: ((line: Line) => unknown) | null, height?: number, legend?: boolean }} how */
  constructor({ onpick = null, height = 236, legend = false }) {
    this.onpick = onpick;
    this.height = height;
    this.legend = legend;
    /** @type {Map<string, Entry>} */
    this.charts = new Map();
    /** @type {Set<string>} */
    this.shown = new Set();
    /** @type {Map<Element, string>} */
    this.names = new Map();
    this.node = widget(h("div.chart-grid"));
    this.sight = new IntersectionObserver(
      (entries) => {
        for (const { target, isIntersecting } of entries) {
          const name = this.names.get(target);
          if (name === undefined) continue;
          if (isIntersecting) this.shown.add(name);
          else this.shown.delete(name);
          if (isIntersecting) this.#load(name);
        }
      },
      { rootMargin: "200px" },
    );
  }

  close() {
    this.sight.disconnect();
    for (const { chart } of this.charts.values()) chart.close();
  }

  /**
   * panels: [{name, lines}]
   * @param {{ name: string, lines: Line[] }[]} panels
   * @param {CurveOptions} options
   */
  set(panels, options) {
    const text = JSON.stringify(options);
    for (const [name, entry] of this.charts) {
      if (panels.some((one) => one.name === name)) continue;
      this.sight.unobserve(entry.chart.node);
      entry.chart.close();
      this.charts.delete(name);
      this.shown.delete(name);
      this.names.delete(entry.chart.node);
    }
    for (const { name, lines } of panels) {
      let entry = this.charts.get(name);
      if (!entry) {
        const chart = new CurveChart({
          title: name,
          height: this.height,
          legend: this.legend,
          onzoom: zoomInAddress,
          onpick: this.onpick,
        });
        this.names.set(chart.node, name);
        entry = { chart, want: "", lines, options, stale: false };
        this.charts.set(name, entry);
      }
      const want = `${text}${lines.map((one) => one.key).join(";")}`;
      if (entry.want !== want) Object.assign(entry, { want, lines, options, stale: true });
    }
    render(
      this.node,
      panels.map(({ name }) => this.charts.get(name)).map((entry) => entry && hold(entry.chart.node)),
    );
    for (const [name, { chart }] of this.charts) {
      this.sight.observe(chart.node);
      if (this.shown.has(name)) this.#load(name);
    }
  }

  /** @param {string} name */
  #load(name) {
    const entry = this.charts.get(name);
    if (!entry?.stale) return;
    entry.stale = false;
    entry.chart.set({ lines: entry.lines, options: entry.options });
  }

  /** @param {Points} points */
  grow(points) {
    for (const [name, entry] of this.charts) {
      if (this.shown.has(name)) entry.chart.grow(points);
      else if (entry.lines.some((one) => points[one.key])) entry.stale = true;
    }
  }

  get keys() {
    return [...this.shown].flatMap((name) => this.charts.get(name)?.lines.map((one) => one.key) ?? []);
  }
}
