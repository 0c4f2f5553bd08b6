// A surface between scattered values, and its contour lines. Pure.

const SIZE = 64; // nodes along each side
const EDGE = 0.03; // over which the surface fades
const MANY = 1000; // points, of which neighbours are taken together
const CELLS = 32;

/**
 * @typedef {{ x: number, y: number, value: number }} Point
 * @typedef {{ size: number, values: Float64Array, trust: Float64Array }} Surface rows by y
 * @typedef {[number, number]} Spot
 * @typedef {[number, number, number, number]} Segment x0, y0, x1, y1
 */

/**
 * The mean of all values, the nearer the more it counts (inverse-distance weighting), at each node of
 * a grid over the unit square. `trust` goes to 0 where no point is near: nothing is known there.
 *
 * A side with `strips` has that many categories, which say nothing of each other: a node knows only
 * the points of its own strip, wherever in it, and between two strips there is a gap.
 * @param {Point[]} all
 * @param {number} [across] strips along x
 * @param {number} [up] strips along y
 * @returns {Surface}
 */
export function surface(all, across = 0, up = 0) {
  const points = all.length > MANY ? thinned(all) : all;
  const soft = all.length > MANY ? 0.5 / CELLS : 1e-4; // of many, no single one makes a peak
  const [values, trust] = [new Float64Array(SIZE * SIZE), new Float64Array(SIZE * SIZE)];
  const reach = Math.max(0.08, Math.min(0.3, 1 / Math.sqrt(points.length)));
  for (let row = 0; row < SIZE; row += 1) {
    for (let column = 0; column < SIZE; column += 1) {
      const [x, y] = [column / (SIZE - 1), row / (SIZE - 1)];
      if (isBetween(x, across) || isBetween(y, up)) continue; // its trust stays 0
      let [sum, weights, nearest] = [0, 0, Infinity];
      for (const point of points) {
        if (stripOf(point.x, across) !== stripOf(x, across) || stripOf(point.y, up) !== stripOf(y, up))
          continue;
        const square = (across ? 0 : (point.x - x) ** 2) + (up ? 0 : (point.y - y) ** 2);
        const softened = square + soft * soft;
        const weight = 1 / (softened * Math.sqrt(softened)); // the distance to the power of -3
        sum += weight * point.value;
        weights += weight;
        if (square < nearest) nearest = square;
      }
      if (!weights) continue;
      values[row * SIZE + column] = sum / weights;
      trust[row * SIZE + column] = Math.max(0, Math.min(1, (reach - Math.sqrt(nearest)) / EDGE));
    }
  }
  return { size: SIZE, values, trust };
}

/**
 * @param {number} share
 * @param {number} strips
 */
const stripOf = (share, strips) => (strips ? Math.min(strips - 1, Math.floor(share * strips)) : 0);

/**
 * @param {number} share
 * @param {number} strips
 */
const isBetween = (share, strips) =>
  strips > 1 && Math.abs(share * strips - Math.round(share * strips)) * SIZE < strips;

/**
 * Thousands of points as the means of their neighbours.
 * @param {Point[]} points
 * @returns {Point[]}
 */
function thinned(points) {
  const cells = new Map();
  for (const { x, y, value } of points) {
    const key = Math.floor(x * CELLS) * 2 * CELLS + Math.floor(y * CELLS);
    const cell = cells.get(key) ?? { x: 0, y: 0, value: 0, n: 0 };
    cells.set(key, { x: cell.x + x, y: cell.y + y, value: cell.value + value, n: cell.n + 1 });
  }
  return [...cells.values()].map(({ x, y, value, n }) => ({ x: x / n, y: y / n, value: value / n }));
}

/**
 * Where a surface has this value (marching squares): [[x0, y0, x1, y1], ...] in the unit square.
 * @param {Surface} surface
 * @param {number} level
 * @returns {Segment[]}
 */
export function contourLine({ size, values, trust }, level) {
  /** @type {Segment[]} */
  const segments = [];
  const side = size - 1;
  for (let row = 0; row < side; row += 1) {
    for (let column = 0; column < side; column += 1) {
      const at = row * size + column;
      const isAbove = values[at] >= level;
      if ([at + 1, at + size, at + size + 1].every((other) => values[other] >= level === isAbove)) continue;
      const corners = [
        [column, row],
        [column + 1, row],
        [column + 1, row + 1],
        [column, row + 1],
      ].map(([x, y]) => ({ x, y, value: values[y * size + x], trust: trust[y * size + x] }));
      if (corners.some((one) => one.trust < 0.5)) continue;
      for (const [from, to] of cuts(corners, level))
        segments.push([from[0] / side, from[1] / side, to[0] / side, to[1] / side]);
    }
  }
  return segments;
}

/**
 * The lines through one cell: none, one, or at a saddle two.
 * @param {Point[]} corners
 * @param {number} level
 * @returns {[Spot, Spot][]}
 */
function cuts(corners, level) {
  const above = corners.map(({ value }) => value >= level);
  /** @type {(Spot | null)[]} */
  const crossing = corners.map((a, at) => {
    const b = corners[(at + 1) % 4];
    if (above[at] === above[(at + 1) % 4]) return null;
    const share = (level - a.value) / (b.value - a.value);
    return [a.x + share * (b.x - a.x), a.y + share * (b.y - a.y)];
  });
  const found = crossing.filter((one) => one !== null);
  if (found.length < 4) return found.length ? [[found[0], found[1]]] : [];
  const middle = corners.reduce((sum, { value }) => sum + value, 0) / 4;
  const [ab, bc, cd, da] = found;
  return middle >= level === above[0]
    ? [
        [ab, bc],
        [cd, da],
      ]
    : [
        [da, ab],
        [bc, cd],
      ];
}
