// The binary answer of /api/series, and what is drawn of it.

import { getBytes } from "../api.js";
import { real } from "../format.js";

/**
 * @typedef {Float32Array | Float64Array} Column
 *
 * @typedef {object} Series
 * @property {string} key
 * @property {string} kind `bands` when several points share a place
 * @property {number} n points here
 * @property {number} total points that were reported
 * @property {Column} x
 * @property {Column} y
 * @property {Column} lo
 * @property {Column} hi
 * @property {Column | null} counts
 * @property {Column | null} smooth
 *
 * @typedef {object} Head what the answer says of a series
 * @property {string} key
 * @property {string} kind
 * @property {number} n
 * @property {number} total
 * @property {{ name: string, type: string, offset: number }[]} columns
 *
 * @typedef {{ series: Head[] }} Header
 */

/**
 * The curve of a metric: of its reports, or of every batch where a trial gave those too.
 * @param {number} trial
 * @param {{ group: string, name: string }} metric
 * @param {boolean} [everyBatch]
 */
export const seriesKey = (trial, { group, name }, everyBatch = false) =>
  [trial, group, name].map(encodeURIComponent).join(":") + (everyBatch ? ":batches" : "");

/**
 * @param {object} what
 * @param {string[]} what.keys
 * @param {string} what.x
 * @param {Ui.Value} what.from
 * @param {Ui.Value} what.to
 * @param {number} what.px
 * @param {number | undefined} what.smooth
 * @param {AbortSignal} [signal]
 */
export async function fetchSeries({ keys, x, from, to, px, smooth }, signal) {
  const buffer = await getBytes(
    "/api/series",
    {
      keys: keys.join(";"),
      x,
      from,
      to,
      smooth: smooth || null,
      px,
    },
    signal,
  );
  return decode(buffer);
}

/**
 * @param {ArrayBuffer} buffer
 * @returns {Series[]}
 */
export function decode(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const start = 4 + length;
  const series = /** @type {Header} */ (header).series.map((one) => {
    /** @type {Record<string, Column>} */
    const columns = {};
    for (const { name, type, offset } of one.columns) {
      columns[name] = new (type === "f4" ? Float32Array : Float64Array)(buffer, start + offset, one.n);
    }
    return shaped(one, columns);
  });
  return series;
}

/**
 * @param {Head} head
 * @param {Record<string, Column>} columns
 * @returns {Series}
 */
function shaped({ key, kind, n, total }, columns) {
  const y = columns.y ?? columns.mean;
  return {
    key,
    kind,
    n,
    total,
    x: columns.x,
    y,
    lo: columns.min ?? y,
    hi: columns.max ?? y,
    counts: columns.count ?? null,
    smooth: columns.smooth ?? null,
  };
}

/**
 * Adds points that just came; they cost what they are, not what is there already.
 * @template {Series} Kind
 * @param {Kind} series
 * @param {number[]} xs
 * @param {(Api.Number | null)[]} ys
 * @returns {Kind}
 */
export function extended(series, xs, ys) {
  const end = series.x.length ? series.x[series.x.length - 1] : -Infinity;
  const fresh = xs.map((x, at) => [x, real(ys[at]) ?? NaN]).filter(([x]) => x > end);
  if (!fresh.length) return series;
  /**
   * @param {Column} column
   * @param {number[]} values
   */
  const join = (column, values) => {
    const joined = new Float64Array(column.length + values.length);
    joined.set(column);
    joined.set(values, column.length);
    return joined;
  };
  const values = fresh.map(([, y]) => y);
  const y = join(series.y, values);
  return {
    ...series,
    x: join(
      series.x,
      fresh.map(([x]) => x),
    ),
    y,
    lo: series.lo === series.y ? y : join(series.lo, values),
    hi: series.hi === series.y ? y : join(series.hi, values),
    counts:
      series.counts &&
      join(
        series.counts,
        values.map(() => 1),
      ),
    n: series.n + fresh.length,
    total: series.total + fresh.length,
    smooth: null,
  };
}

/**
 * The best value that any of them had reached by each x.
 * @param {Pick<Series, "x" | "lo" | "hi">[]} series
 * @param {boolean} smallerIsBetter
 */
export function envelope(series, smallerIsBetter) {
  /** @type {[number, number][]} */
  const points = [];
  for (const { x, lo, hi } of series) {
    const edge = smallerIsBetter ? lo : hi;
    for (let at = 0; at < x.length; at += 1) if (Number.isFinite(edge[at])) points.push([x[at], edge[at]]);
  }
  points.sort((a, b) => a[0] - b[0]);
  /** @type {[number[], number[]]} */
  const [xs, ys] = [[], []];
  let best = smallerIsBetter ? Infinity : -Infinity;
  for (const [x, y] of points) {
    if (smallerIsBetter ? y >= best : y <= best) continue;
    if (ys.length) {
      xs.push(x);
      ys.push(best); // a step, not a slope: nothing was that good in between
    }
    best = y;
    xs.push(x);
    ys.push(y);
  }
  const last = points.at(-1);
  if (last) {
    xs.push(last[0]);
    ys.push(best);
  }
  return { x: Float64Array.from(xs), y: Float64Array.from(ys) };
}

/**
 * @param {{ y: Column, smooth?: Column | null }} series
 * @param {number} at
 */
export const shownY = (series, at) => (series.smooth ?? series.y)[at];
