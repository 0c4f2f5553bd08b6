// From values to pixels and back, and where the ticks are. Pure.

import { clock, date, duration, number } from "../format.js";

/**
 * @typedef {"linear" | "log" | "wall" | "relative"} Kind wall: unix seconds; relative: seconds
 * @typedef {[number, number]} Range
 * @typedef {{ value: number, text: string }} Tick
 *
 * @typedef {object} Scale
 * @property {Kind} kind
 * @property {number} low
 * @property {number} high
 * @property {(value: number) => number} pixel
 * @property {(pixel: number) => number} value
 * @property {(value: number) => boolean} fits whether it has a place
 */

/**
 * @param {Kind} kind
 * @param {Range} values
 * @param {Range} pixels
 * @returns {Scale}
 */
export function makeScale(kind, [low, high], [start, end]) {
  const log = kind === "log";
  /** @type {(it: number) => number} */
  const to = log ? Math.log10 : (it) => it;
  /** @type {(it: number) => number} */
  const from = log ? (it) => 10 ** it : (it) => it;
  const a = to(low);
  const span = to(high) - a || 1;
  return {
    kind,
    low,
    high,
    pixel: (value) => start + ((to(value) - a) / span) * (end - start),
    value: (pixel) => from(a + ((pixel - start) / (end - start)) * span),
    fits: (value) => Number.isFinite(value) && (!log || value > 0),
  };
}

/**
 * The range that holds these values with a little air; null when there is none.
 * @param {number} low
 * @param {number} high
 * @param {Kind} kind
 * @param {number} [air]
 * @returns {Range | null}
 */
export function padded(low, high, kind, air = 0.04) {
  if (!(low <= high)) return null;
  if (kind === "log") {
    const factor = low === high ? 2 : (high / low) ** air;
    return [low / factor, high * factor];
  }
  const more = low === high ? Math.abs(low) * 0.1 || 1 : (high - low) * air;
  return [low - more, high + more];
}

const STEPS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800,
  2592000, 31536000,
];

/**
 * @param {Scale} scale
 * @param {number} wanted how many, about
 * @param {boolean} [whole] at whole numbers only
 * @returns {Tick[]}
 */
export function ticks(scale, wanted, whole = false) {
  if (scale.kind === "log") return logTicks(scale, wanted);
  const span = scale.high - scale.low;
  const timed = (scale.kind === "wall" || scale.kind === "relative") && span > 2;
  const step = timed
    ? (STEPS.find((one) => span / one <= wanted) ?? STEPS[STEPS.length - 1])
    : Math.max(niceStep(span / wanted), whole ? 1 : 0);
  const shift = scale.kind === "wall" ? new Date(scale.low * 1000).getTimezoneOffset() * 60 : 0;
  /** @type {Tick[]} */
  const marks = [];
  const first = Math.ceil((scale.low - shift) / step) * step + shift;
  for (let i = 0; i <= 2 * wanted; i += 1) {
    const at = first + i * step; // counted: next to a large value a small step may be lost
    if (!(at <= scale.high + step * 1e-9)) break;
    marks.push({ value: Math.abs(at) < step * 1e-9 ? 0 : at, text: label(at, step, scale.kind) });
  }
  return marks;
}

/** @param {number} rough */
function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  const rest = rough / power;
  return power * (rest <= 1 ? 1 : rest <= 2 ? 2 : rest <= 5 ? 5 : 10);
}

/**
 * @param {number} at
 * @param {number} step
 * @param {Kind} kind
 */
function label(at, step, kind) {
  if (kind === "wall") return step >= 86400 ? date(at) : clock(at).slice(0, step < 60 ? 8 : 5);
  if (kind === "relative") return duration(Math.abs(at) < step * 1e-9 ? 0 : at).replace(/ 0 (s|min|h)$/, "");
  if (Math.abs(at) < step * 1e-9) return "0";
  if (Math.abs(at) >= 1e4 && step >= 100) return compact(at);
  if (Math.abs(at) < 1e-3 || Math.abs(at) >= 1e7) return number(at, 4);
  return at.toFixed(Math.max(0, -Math.floor(Math.log10(step) + 1e-9))).replace("-", "−");
}

/** @param {number} at */
function compact(at) {
  const [size, unit] = Math.abs(at) >= 1e9 ? [1e9, "G"] : Math.abs(at) >= 1e6 ? [1e6, "M"] : [1e3, "k"];
  return `${Number((at / size).toPrecision(6))}${unit}`.replace("-", "−");
}

/**
 * @param {Scale} scale
 * @param {number} wanted
 */
function logTicks({ low, high }, wanted) {
  if (!(low > 0)) return [];
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const factors = last - first <= 2 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil((last - first) / wanted));
  /** @type {Tick[]} */
  const marks = [];
  for (let power = first; power <= last; power += every) {
    for (const factor of factors) {
      const value = factor * 10 ** power;
      if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9))
        marks.push({ value, text: number(value, 3) });
    }
  }
  return marks.length > 1 ? marks : [low, high].map((value) => ({ value, text: number(value, 3) }));
}
