// Many small charts with one zoom; each asks for its data when it comes in sight.

import { CurveChart } from "../chart/curves.js";
import { zoomInAddress } from "../chart/controls.js";
import { h, hold, render, widget } from "../dom.js";

export class ChartGrid {
  constructor({ onpick = null, height = 220, legend = false }) {
    Object.assign(this, { onpick, height, legend, charts: new Map(), shown: new Set() });
    this.node = widget(h("div.chart-grid"));
    this.sight = new IntersectionObserver(
      (entries) => {
        for (const { target, isIntersecting } of entries) {
          if (isIntersecting) this.shown.add(target.name);
          else this.shown.delete(target.name);
          if (isIntersecting) this.#load(target.name);
        }
      },
      { rootMargin: "200px" },
    );
  }

  close() {
    this.sight.disconnect();
    for (const { chart } of this.charts.values()) chart.close();
  }

  // panels: [{name, lines}]
  set(panels, options) {
    const text = JSON.stringify(options);
    for (const [name, entry] of this.charts) {
      if (panels.some((one) => one.name === name)) continue;
      this.sight.unobserve(entry.chart.node);
      entry.chart.close();
      this.charts.delete(name);
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
        chart.node.name = name;
        entry = { chart };
        this.charts.set(name, entry);
      }
      const want = `${text}${lines.map((one) => one.key).join(";")}`;
      if (entry.want !== want) Object.assign(entry, { want, lines, options, stale: true });
    }
    render(
      this.node,
      panels.map(({ name }) => hold(this.charts.get(name).chart.node)),
    );
    for (const [name, { chart }] of this.charts) {
      this.sight.observe(chart.node);
      if (this.shown.has(name)) this.#load(name);
    }
  }

  #load(name) {
    const entry = this.charts.get(name);
    if (!entry?.stale) return;
    entry.stale = false;
    entry.chart.set({ lines: entry.lines, options: entry.options });
  }

  grow(points) {
    for (const [name, entry] of this.charts) {
      if (this.shown.has(name)) entry.chart.grow(points);
      else if (entry.lines?.some((one) => points[one.key])) entry.stale = true;
    }
  }

  get keys() {
    return [...this.shown].flatMap((name) => this.charts.get(name)?.lines?.map((one) => one.key) ?? []);
  }
}
