// A surface under a plot: tints, contour lines with their values, and what the tints mean.

import { contourLine, surface } from "./field.js";
import { drawRamp, inkOf } from "./paint.js";
import { rampParts, token } from "./palette.js";
import { makeScale, ticks } from "./scale.js";

const LEVELS = 8;
const LABEL = 32; // pixels between the values of two lines
const SPOTS = [0.5, 0.25, 0.75, 0.1, 0.9]; // where along a line its value may stand

/**
 * @import { Segment, Surface } from "./field.js"
 * @import { Ink } from "./paint.js"
 * @import { Frame } from "./plot.js"
 * @import { Kind } from "./scale.js"
 *
 * @typedef {object} Axis
 * @property {Float64Array} values
 * @property {Kind} kind
 * @property {number} low
 * @property {number} high
 * @property {number} strips how many categories; 0: its values lie between each other
 *
 * @typedef {object} Contour
 * @property {Axis} x
 * @property {Axis} y
 * @property {Surface} land
 * @property {{ share: number, text: string, segments: Segment[] }[]} lines
 * @property {{ share: number, text: string }[]} marks
 * @property {number | null} cut values that are worse share a tint
 */

/**
 * @param {object} what
 * @param {Axis} what.x
 * @param {Axis} what.y
 * @param {number[]} what.values what was measured
 * @param {"linear" | "log"} what.kind of the values
 * @param {boolean} what.smallerIsBetter
 * @returns {Contour}
 */
export function makeContour({ x, y, values, kind, smallerIsBetter }) {
  const unit = (/** @type {Axis} */ axis) => makeScale(axis.kind, [axis.low, axis.high], [0, 1]);
  const [ux, uy] = [unit(x), unit(y)];
  const fine = values.filter((it) => Number.isFinite(it) && (kind !== "log" || it > 0));
  const { best, worst, cut } = extent(fine, smallerIsBetter);
  const worth = makeScale(kind, [worst, best], [0, 1]);
  const points = values
    .map((it, at) => ({
      x: ux.pixel(x.values[at]),
      y: uy.pixel(y.values[at]),
      value: Math.max(0, worth.pixel(it)),
    }))
    .filter((one) => Object.values(one).every(Number.isFinite));
  const land = surface(points, x.strips, y.strips);
  const levels = ticks(makeScale(kind, [Math.min(best, worst), Math.max(best, worst)], [0, 1]), LEVELS)
    .map(({ value, text }) => ({ share: worth.pixel(value), text }))
    .filter(({ share }) => share > 0 && share < 1);
  const lines = levels.map((level) => ({ ...level, segments: contourLine(land, level.share) }));
  return { x, y, land, lines, marks: levels, cut };
}

/**
 * From worst to best; if the worst tenth takes up more than half of that, it is cut off: a few trials
 * that came to nothing would flatten all that is worth looking at.
 * @param {number[]} values
 * @param {boolean} smallerIsBetter
 */
function extent(values, smallerIsBetter) {
  const sorted = [...values].sort((a, b) => (smallerIsBetter ? b - a : a - b));
  const [worst, best, edge] = [0, sorted.length - 1, Math.floor(sorted.length / 10)].map((at) => sorted[at]);
  const cut = edge !== best && Math.abs(best - edge) < Math.abs(best - worst) / 2;
  return { best, worst: cut ? edge : worst, cut: cut ? edge : null };
}

/**
 * @param {Ink} ink
 * @param {Frame} plot
 * @param {Contour} contour
 */
export function drawContour(ink, plot, { x, y, land, lines, marks }) {
  const { box, xScale, yScale } = plot;
  const [left, right] = [xScale.pixel(x.low), xScale.pixel(x.high)];
  const [bottom, top] = [yScale.pixel(y.low), yScale.pixel(y.high)];
  ink.save();
  ink.beginPath();
  ink.rect(box.left, box.top, box.right - box.left, box.bottom - box.top);
  ink.clip();
  const [dx, dy] = [(right - left) / (land.size - 1), (bottom - top) / (land.size - 1)];
  ink.drawImage(tints(land), left - dx / 2, top - dy / 2, dx * land.size, dy * land.size);
  const px = (/** @type {number} */ share) => left + share * (right - left);
  const py = (/** @type {number} */ share) => bottom + share * (top - bottom);
  ink.strokeStyle = token("text");
  ink.lineWidth = 1;
  ink.globalAlpha = 0.6;
  ink.beginPath();
  for (const { segments } of lines) {
    for (const [x0, y0, x1, y1] of segments) {
      ink.moveTo(px(x0), py(y0));
      ink.lineTo(px(x1), py(y1));
    }
  }
  ink.stroke();
  ink.globalAlpha = 1;
  ink.textAlign = "center";
  ink.textBaseline = "middle";
  ink.lineWidth = 3;
  ink.strokeStyle = token("surface");
  ink.fillStyle = token("text");
  /** @type {[number, number][]} */
  const told = [];
  for (const { segments, text } of lines) {
    const free = (/** @type {Segment} */ [x, y]) =>
      told.every((one) => Math.hypot(one[0] - px(x), one[1] - py(y)) > LABEL);
    const at = SPOTS.map((share) => segments[Math.floor(segments.length * share)]).find(
      (one) => one && free(one),
    );
    if (!at || segments.length < 8) continue; // too short to be told
    const [left, top] = [px(at[0]), py(at[1])];
    ink.strokeText(text, left, top);
    ink.fillText(text, left, top);
    told.push([left, top]);
  }
  ink.restore();
  drawRamp(ink, box.right + 16, box.top, marks);
}

/**
 * One dot of colour per node; it is stretched over the chart, which smooths it.
 * @param {Surface} surface
 */
function tints({ size, values, trust }) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = size;
  const ink = inkOf(canvas);
  const image = ink.createImageData(size, size);
  values.forEach((share, at) => {
    const row = size - 1 - Math.floor(at / size); // pictures begin at the top
    image.data.set([...rampParts(share), 255 * trust[at]], (row * size + (at % size)) * 4);
  });
  ink.putImageData(image, 0, 0);
  return canvas;
}
