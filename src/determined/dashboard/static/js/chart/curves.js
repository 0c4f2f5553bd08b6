// Learning curves: asks the server for what the width can show, draws it, and keeps it growing.

import { isAbort } from "../api.js";
import { h, hold, render, widget } from "../dom.js";
import { count, duration, moment, number, value } from "../format.js";
import { button, problem } from "../widgets/parts.js";
import { meanCurve } from "./groups.js";
import { look, token } from "./palette.js";
import { pictureButton } from "./picture.js";
import { Plot } from "./plot.js";
import { envelope, extended, fetchSeries } from "./series.js";
import { swatch } from "./swatch.js";

/**
 * @import { Points } from "../live.js"
 * @import { PlotSeries, Zoom } from "./plot.js"
 * @import { Kind, Range } from "./scale.js"
 * @import { Series } from "./series.js"
 *
 * @typedef {object} Line
 * @property {string} key TRIAL:GROUP:NAME
 * @property {string} name
 * @property {string} [href]
 * @property {Record<string, unknown>} [about] hyperparameters and their values
 * @property {number} [at] place in the palette
 * @property {string} [group] lines of one group are drawn as their mean, with a band
 *
 * @typedef {object} CurveOptions
 * @property {string} [x]
 * @property {Ui.Value} [from]
 * @property {Ui.Value} [to]
 * @property {number} [smooth]
 * @property {boolean} [logx]
 * @property {boolean} [logy]
 * @property {boolean} [envelope]
 * @property {boolean} [means]
 * @property {boolean} [smallerIsBetter]
 * @property {string} [note]
 *
 * @typedef {Series & { line: Line, at: number }} Curve
 * @typedef {PlotSeries & Partial<Series> & { line?: Line }} Drawn
 */

export const X_AXES = [
  { value: "steps", text: "Batches" },
  { value: "epochs", text: "Epochs" },
  { value: "relative", text: "Time since start" },
  { value: "wall", text: "Wall time" },
];

export class CurveChart {
  /**
   * @param {object} how
   * @param {string} how.title
   * @param {number} [how.height]
   * @param {boolean} [how.legend]
   * @param {((range: Range | null) => unknown) | null} [how.onzoom]
   * @param {((line: Line) => unknown) | null} [how.onpick]
   */
  constructor({ title, height = 320, legend = true, onzoom = null, onpick = null }) {
    this.title = title;
    this.legend = legend;
    this.onzoom = onzoom;
    /** @type {Line[]} */
    this.lines = [];
    /** @type {CurveOptions} */
    this.options = {};
    /** @type {Curve[]} */
    this.series = [];
    this.said = "";
    /** @type {Error | null} */
    this.error = null;
    /** @type {AbortController | null} */
    this.request = null;
    /** @type {number | null} */
    this.again = null;
    /** @type {Plot<Drawn>} */
    this.plot = new Plot({
      label: title,
      height,
      onpick: onpick && (({ line }) => line && onpick(line)),
      describe: (series, at) => this.#describe(series, at),
      onzoom: (range) => this.#zoom(range),
    });
    this.list = widget(h("ul.legend", { "aria-label": `Curves of ${title}` }));
    this.foot = widget(h("footer.chart-foot"));
    this.node = widget(h("section.card.chart", { "aria-label": title }));
    this.recolour = () => this.#show();
    addEventListener("themechange", this.recolour);
    this.#frame();
  }

  close() {
    this.plot.close();
    this.request?.abort();
    clearTimeout(this.again ?? undefined);
    removeEventListener("themechange", this.recolour);
  }

  #frame() {
    render(
      this.node,
      h(
        "header",
        h("h2.cut", { title: this.title }, this.title),
        h("span.chart-count", { title: "Points drawn, out of all reported" }, this.said),
        this.options.from || this.options.to || this.plot.y.range
          ? button("Whole range", () => this.#zoom(null), { kind: "quiet", picture: "reset" })
          : null,
        pictureButton(this.title, this.plot),
      ),
      this.error ? problem(this.error, () => this.load()) : null,
      h(
        "div.chart-body",
        hold(this.plot.node),
        this.legend && this.lines.length > 1 ? hold(this.list) : null,
      ),
      hold(this.foot),
    );
  }

  /**
   * options: {x, from, to, smooth, logx, logy, envelope, smallerIsBetter}
   * @param {{ title?: string, lines?: Line[], options?: CurveOptions }} what
   */
  set({ title = this.title, lines = this.lines, options = this.options }) {
    this.title = title;
    this.lines = lines;
    this.options = options;
    this.plot.label = title;
    return this.load();
  }

  async load() {
    this.request?.abort();
    clearTimeout(this.again ?? undefined);
    this.again = null;
    const request = new AbortController();
    this.request = request;
    const { x = "steps", from, to, smooth } = this.options;
    if (!this.lines.length) {
      this.series = [];
      this.#show();
      return;
    }
    const px = Math.max(100, this.plot.node.clientWidth || 800);
    try {
      const answer = await fetchSeries(
        { keys: this.lines.map((one) => one.key), x, from, to, px, smooth },
        request.signal,
      );
      const byKey = new Map(this.lines.map((line, at) => [line.key, { line, at: line.at ?? at }]));
      this.series = answer.flatMap((one) => {
        const known = byKey.get(one.key);
        return known ? [{ ...one, ...known }] : [];
      });
      this.error = null;
    } catch (error) {
      if (isAbort(error)) return;
      this.error = /** @type {Error} */ (error);
    }
    if (request === this.request) this.#show();
  }

  /**
   * Live: {key: {x: [...], y: [...]}}; anything but plain batches is asked for anew, at most once a second.
   * @param {Points} points
   */
  grow(points) {
    const { x = "steps", smooth, to } = this.options;
    const known = this.series.some((one) => points[one.key]);
    if (!known && !this.lines.some((one) => points[one.key])) return;
    if (x !== "steps" || smooth || to || !known) {
      this.again ??= setTimeout(() => this.load(), 1000);
      return;
    }
    this.series = this.series.map((one) =>
      points[one.key] ? extended(one, points[one.key].x, points[one.key].y) : one,
    );
    if (this.series.some((one) => one.n > 4000 && one.kind === "bands")) this.load();
    else this.#show();
  }

  #show() {
    const { x = "steps", from, to, logx, logy, smallerIsBetter = true } = this.options;
    const many = new Set(this.lines.map((one) => one.group ?? one.key)).size;
    const curves = joined(this.series.filter((one) => one.total)).map((one) => ({
      ...one,
      ...look(one.at, many),
      width: many > 28 ? 1 : 1.5,
      name: one.line.name,
    }));
    const shown = curves.reduce((sum, one) => sum + (one.counts ? one.n : one.x.length), 0);
    const total = curves.reduce((sum, one) => sum + one.total, 0);
    const banded = curves.some((one) => one.kind === "bands");
    const isGrouped = this.lines.some((one) => one.group !== undefined);
    this.said = !curves.length
      ? ""
      : banded && !isGrouped
        ? `${shown.toLocaleString("en-US")} of ${count(total, "point")}`
        : count(total, "point");
    /** @type {Drawn[]} */
    const drawn = [...curves];
    if (this.options.envelope && curves.length > 1) {
      drawn.push({
        key: "best so far",
        name: "Best so far",
        mute: true,
        color: token("text"),
        dash: [],
        width: 2,
        ...envelope(curves, smallerIsBetter),
      });
    }
    /** @type {Kind} */
    const kind = x === "wall" || x === "relative" ? x : logx ? "log" : "linear";
    /** @type {Range | null} */
    const range = from || to ? [Number(from), Number(to)] : null;
    this.plot.set({
      series: drawn,
      x: { kind, title: xTitle(x), range },
      y: {
        kind: logy ? "log" : "linear",
        title: "",
        range: range ? this.plot.y.range : null,
        byMeans: this.options.means,
      },
      nothing: range ? "No points in this range" : this.request ? "No points yet" : "",
    });
    this.#frame();
    render(this.list, this.#legend(drawn));
    render(this.foot, this.#notes(drawn, banded && !isGrouped));
  }

  /** @param {Drawn[]} drawn */
  #legend(drawn) {
    /** @param {Drawn} one */
    const last = (one) => {
      for (let at = one.y.length - 1; at >= 0; at -= 1) if (Number.isFinite(one.y[at])) return one.y[at];
      return null;
    };
    return drawn.slice(0, 100).map((one) =>
      h(
        "li",
        {
          key: one.key,
          onmouseenter: () => this.plot.light(one.key),
          onmouseleave: () => this.plot.light(null),
        },
        swatch({ color: one.color, dash: one.dash ?? [] }),
        one.line?.href
          ? h("a.cut", { href: one.line.href, title: one.name }, one.name)
          : h("span.cut", { title: one.name }, one.name),
        h("span.number", number(last(one))),
      ),
    );
  }

  /**
   * @param {Drawn[]} drawn
   * @param {boolean} banded
   */
  #notes(drawn, banded) {
    const lost = drawn.filter((one) => one.y.some((it) => !Number.isFinite(it))).map((one) => one.name);
    const hidden = this.options.logy
      ? drawn.reduce((sum, one) => sum + one.y.filter((it) => it <= 0).length, 0)
      : 0;
    const wanted = new Set(this.lines.map((one) => one.group ?? one.key)).size;
    const without = wanted - drawn.filter((one) => !one.mute).length;
    return [
      banded
        ? h(
            "span",
            "Bands span the minimum to the maximum, lines are means. Drag to zoom in to single points.",
          )
        : null,
      without && this.lines.length > 1
        ? h(
            "span",
            `${count(without, "curve has", "curves have")} no points ${this.options.from || this.options.to ? "in this range" : "yet"}.`,
          )
        : null,
      lost.length
        ? h(
            "span",
            `× NaN or infinite: ${lost
              .slice(0, 3)
              .join(", ")}${lost.length > 3 ? ` and ${lost.length - 3} more` : ""}.`,
          )
        : null,
      hidden ? h("span", `${count(hidden, "value")} at or below 0 cannot be shown on a log axis.`) : null,
      this.options.note ? h("span", this.options.note) : null,
    ];
  }

  /**
   * @param {Drawn} series
   * @param {number} at
   */
  #describe(series, at) {
    const { x = "steps" } = this.options;
    const { lo = series.y, hi = series.y } = series;
    const points = series.counts?.[at] ?? 1;
    const many = points > 1;
    const about = Object.entries(series.line?.about ?? {}).slice(0, 8);
    return [
      h("strong.cut", series.name),
      h(
        "dl.facts",
        h("dt", xTitle(x)),
        h("dd", xText(series.x[at], x)),
        series.smooth ? [h("dt", "Smoothed"), h("dd", number(series.smooth[at], 6))] : null,
        h("dt", many ? "Mean" : "Value"),
        h("dd", number(series.y[at], 6)),
        many
          ? [
              h("dt", series.line?.group === undefined ? "Least … greatest" : "One deviation"),
              h("dd", `${number(lo[at], 6)} … ${number(hi[at], 6)}`),
              h("dt", series.line?.group === undefined ? "Points here" : "Trials here"),
              h("dd", number(points)),
            ]
          : null,
        about.map(([name, it]) => [h("dt.mono", name), h("dd.mono", value(it))]),
      ),
    ];
  }

  /** @param {Zoom} range */
  #zoom(range) {
    this.plot.y = { ...this.plot.y, range: range?.y ?? null };
    if (this.onzoom) this.onzoom(range?.x ?? null);
    else this.set({ options: { ...this.options, from: range?.x[0] ?? null, to: range?.x[1] ?? null } });
  }
}

/**
 * Curves of one group become their mean; the first of them stands for all.
 * @param {Curve[]} curves
 * @returns {Curve[]}
 */
function joined(curves) {
  /** @type {Map<string, Curve[]>} */
  const groups = new Map();
  for (const one of curves) {
    const group = one.line.group ?? one.key;
    groups.set(group, [...(groups.get(group) ?? []), one]);
  }
  return [...groups.values()].map((all) => {
    const [first] = all;
    if (first.line.group === undefined) return first;
    const line = { ...first.line, name: first.line.group, href: undefined };
    return { ...first, ...meanCurve(all.map(asDrawn)), kind: "bands", line };
  });
}

/**
 * What is drawn of a curve: smoothed, if that was asked for.
 * @param {Curve} curve
 */
const asDrawn = (curve) => ({ ...curve, y: curve.smooth ?? curve.y });

/** @param {string} x */
const xTitle = (x) => X_AXES.find((one) => one.value === x)?.text ?? x.replace("metric:", "");

/**
 * @param {number} it
 * @param {string} x
 */
function xText(it, x) {
  if (x === "wall") return moment(it);
  return x === "relative" ? duration(it) : number(it, 7);
}
