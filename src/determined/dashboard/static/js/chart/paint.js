// What a plot looks like: each function draws one part on a canvas.

import { ramp, token } from "./palette.js";
import { shownY } from "./series.js";

/**
 * @import { Frame, PlotSeries } from "./plot.js"
 * @import { Column } from "./series.js"
 *
 * @typedef {CanvasRenderingContext2D} Ink
 * @typedef {Pick<PlotSeries, "x" | "y" | "color" | "colors" | "ring" | "radius">} Dots
 */

const ROOMY = 18; // pixels from point to point

/**
 * What one draws on a canvas with.
 * @param {HTMLCanvasElement} canvas
 */
export const inkOf = (canvas) => /** @type {Ink} */ (canvas.getContext("2d"));

/**
 * @param {Ink} ink
 * @param {Frame} plot
 */
export function drawAxes(ink, { box, x, y, xScale, yScale, xTicks, yTicks }) {
  const { left, right, bottom } = box;
  ink.lineWidth = 1;
  ink.setLineDash([]);
  ink.strokeStyle = token("line");
  ink.fillStyle = token("muted");
  ink.textBaseline = "middle";
  ink.textAlign = "right";
  for (const { value, text } of yTicks) {
    const at = Math.round(yScale.pixel(value)) + 0.5;
    stroke(ink, left, at, right, at);
    ink.fillText(text, left - 8, at);
  }
  ink.textBaseline = "top";
  let free = -Infinity;
  for (const { value, text } of xTicks) {
    const at = Math.round(xScale.pixel(value)) + 0.5;
    const half = ink.measureText(text).width / 2;
    ink.textAlign = at + half > right + 12 ? "right" : "center";
    stroke(ink, at, bottom, at, bottom + 4);
    if (at - half < free) continue;
    ink.fillText(text, ink.textAlign === "right" ? right + 12 : at, bottom + 8);
    free = at + half + 8;
  }
  ink.strokeStyle = token("line-strong");
  stroke(ink, left, Math.round(bottom) + 0.5, right, Math.round(bottom) + 0.5);
  ink.fillStyle = token("faint");
  if (y.title) {
    ink.textAlign = "left";
    ink.fillText(y.title, 8, 4);
  }
  if (x.title) {
    ink.textAlign = "right";
    ink.fillText(x.title, right, bottom + 24);
  }
}

/**
 * @param {Ink} ink
 * @param {Frame} plot
 */
export function drawNothing(ink, { box, nothing }) {
  ink.fillStyle = token("muted");
  ink.textAlign = "center";
  ink.textBaseline = "middle";
  ink.fillText(nothing, (box.left + box.right) / 2, (box.top + box.bottom) / 2);
}

/**
 * What the colours mean. marks: [{share: 0 (worst) to 1 (best), text}]
 * @param {Ink} ink
 * @param {number} left
 * @param {number} top
 * @param {{ share: number, text: string }[]} marks
 * @param {number} [tall]
 */
export function drawRamp(ink, left, top, marks, tall = 160) {
  for (let y = 0; y < tall; y += 1) {
    ink.fillStyle = ramp(1 - y / tall);
    ink.fillRect(left, top + y, 10, 1);
  }
  ink.fillStyle = token("muted");
  ink.textAlign = "left";
  ink.textBaseline = "middle";
  let free = -Infinity;
  for (const { share, text } of [...marks].sort((a, b) => b.share - a.share)) {
    const y = top + (1 - share) * tall;
    if (y < free) continue;
    ink.fillText(text, left + 16, y);
    free = y + 12;
  }
}

/**
 * @param {Ink} ink
 * @param {number} x0
 * @param {number} y0
 * @param {number} x1
 * @param {number} y1
 */
function stroke(ink, x0, y0, x1, y1) {
  ink.beginPath();
  ink.moveTo(x0, y0);
  ink.lineTo(x1, y1);
  ink.stroke();
}

/**
 * @param {Ink} ink
 * @param {Frame} plot
 * @param {PlotSeries} series
 * @param {boolean} faded
 */
export function drawSeries(ink, plot, series, faded) {
  ink.globalAlpha = faded ? 0.22 : 1;
  if (series.dots) drawDots(ink, plot, series);
  else {
    if (series.lo && series.lo !== series.y) drawBand(ink, plot, series, faded);
    if (series.smooth) drawLine(ink, plot, series, series.y, { width: 1, alpha: faded ? 0.08 : 0.3 });
    drawLine(ink, plot, series, series.smooth ?? series.y, {
      width: series.width ?? 1.5,
      alpha: faded ? 0.22 : 1,
    });
    if (!series.mute) drawPoints(ink, plot, { ...series, y: series.smooth ?? series.y });
    drawLost(ink, plot, series);
  }
  ink.globalAlpha = 1;
}

/**
 * @param {Ink} ink
 * @param {Frame} plot
 * @param {PlotSeries} series
 * @param {boolean} faded
 */
function drawBand(ink, { xScale, yScale }, { x, y, lo = y, hi = y, color }, faded) {
  ink.fillStyle = ink.strokeStyle = color;
  ink.lineWidth = 0.75;
  ink.lineJoin = "round"; // a mitre would reach beyond the greatest value
  for (const [from, to] of stretches(
    x.length,
    (at) => xScale.fits(x[at]) && yScale.fits(lo[at]) && yScale.fits(hi[at]),
  )) {
    ink.beginPath();
    for (let at = from; at < to; at += 1) ink.lineTo(xScale.pixel(x[at]), yScale.pixel(hi[at]));
    for (let at = to - 1; at >= from; at -= 1) ink.lineTo(xScale.pixel(x[at]), yScale.pixel(lo[at]));
    ink.globalAlpha = faded ? 0.05 : 0.2;
    ink.fill();
    ink.globalAlpha = faded ? 0.08 : 0.5; // an edge, so that a spike one pixel wide is seen too
    ink.stroke();
  }
}

/**
 * @param {Ink} ink
 * @param {Frame} plot
 * @param {PlotSeries} series
 * @param {Column} y
 * @param {{ width: number, alpha: number }} how
 */
function drawLine(ink, { xScale, yScale }, { x, color, dash }, y, { width, alpha }) {
  ink.globalAlpha = alpha;
  ink.strokeStyle = ink.fillStyle = color;
  ink.lineWidth = width;
  ink.lineJoin = "round";
  ink.setLineDash(dash ?? []);
  for (const [from, to] of stretches(x.length, (at) => xScale.fits(x[at]) && yScale.fits(y[at]))) {
    ink.beginPath();
    if (to - from === 1) ink.arc(xScale.pixel(x[from]), yScale.pixel(y[from]), 2.5, 0, 7);
    else for (let at = from; at < to; at += 1) ink.lineTo(xScale.pixel(x[at]), yScale.pixel(y[at]));
    if (to - from === 1) ink.fill();
    else ink.stroke();
  }
  ink.setLineDash([]);
}

/**
 * Where points are far apart, each gets a dot: one sees what was measured and what is only a line.
 * @param {Ink} ink
 * @param {Frame} plot
 * @param {Dots} series
 */
function drawPoints(ink, plot, { x, y, color }) {
  /** @param {number} at */
  const far = (at) => plot.xScale.pixel(x[at]);
  if (x.length > 1 && Math.abs(far(x.length - 1) - far(0)) / x.length > ROOMY) {
    drawDots(ink, plot, { x, y, color, radius: 2.5 });
  }
}

/**
 * A cross at the foot of the chart wherever a value was NaN or infinite: a gap alone is easily missed.
 * @param {Ink} ink
 * @param {Frame} plot
 * @param {PlotSeries} series
 */
function drawLost(ink, { xScale, box }, { x, y, color }) {
  ink.strokeStyle = color;
  ink.lineWidth = 1.5;
  let last = -Infinity;
  for (let at = 0; at < x.length; at += 1) {
    if (Number.isFinite(y[at])) continue;
    const px = xScale.pixel(x[at]);
    if (!(px - last > 9)) continue;
    last = px;
    stroke(ink, px - 3, box.bottom - 8, px + 3, box.bottom - 2);
    stroke(ink, px - 3, box.bottom - 2, px + 3, box.bottom - 8);
  }
}

/**
 * @param {Ink} ink
 * @param {Frame} plot
 * @param {Dots} series
 */
function drawDots(ink, { xScale, yScale }, { x, y, color, colors, ring, radius = 4 }) {
  const outline = token("surface");
  for (let at = 0; at < x.length; at += 1) {
    if (!xScale.fits(x[at]) || !yScale.fits(y[at])) continue;
    ink.fillStyle = colors?.[at] ?? color;
    ink.beginPath();
    ink.arc(xScale.pixel(x[at]), yScale.pixel(y[at]), radius, 0, 7);
    ink.fill();
    ink.strokeStyle = outline;
    ink.lineWidth = ring ? 3 : 1;
    ink.stroke();
    if (!ring) continue;
    ink.strokeStyle = ring; // seen on any ground
    ink.lineWidth = 1;
    ink.stroke();
  }
}

/**
 * Where values fit without a gap: from, and up to.
 * @param {number} length
 * @param {(at: number) => boolean} fits
 * @returns {Generator<[number, number]>}
 */
function* stretches(length, fits) {
  let from = -1;
  for (let at = 0; at <= length; at += 1) {
    if (at < length && fits(at)) {
      if (from < 0) from = at;
    } else if (from >= 0) {
      yield [from, at];
      from = -1;
    }
  }
}

/**
 * @param {Ink} ink
 * @param {Frame} plot
 * @param {{ series: PlotSeries, at: number }} cursor
 */
export function drawCursor(ink, { xScale, yScale, box }, { series, at }) {
  const px = xScale.pixel(series.x[at]);
  const py = yScale.pixel(shownY(series, at));
  if (!Number.isFinite(px)) return;
  ink.strokeStyle = token("line-strong");
  ink.lineWidth = 1;
  stroke(ink, Math.round(px) + 0.5, box.top, Math.round(px) + 0.5, box.bottom);
  if (!Number.isFinite(py)) return;
  ink.fillStyle = series.colors?.[at] ?? series.color;
  ink.strokeStyle = token("surface");
  ink.lineWidth = 2;
  ink.beginPath();
  ink.arc(px, py, 5, 0, 7);
  ink.fill();
  ink.stroke();
}

/**
 * @param {Ink} ink
 * @param {Frame} plot
 * @param {{ from: number[], to: number[] }} drag
 */
export function drawSelection(ink, { box }, { from, to }) {
  const tall = Math.abs(from[1] - to[1]) > 24;
  const [top, bottom] = tall ? [Math.min(from[1], to[1]), Math.max(from[1], to[1])] : [box.top, box.bottom];
  ink.globalAlpha = 0.14;
  ink.fillStyle = token("accent");
  ink.fillRect(Math.min(from[0], to[0]), top, Math.abs(from[0] - to[0]), bottom - top);
  ink.globalAlpha = 1;
}
