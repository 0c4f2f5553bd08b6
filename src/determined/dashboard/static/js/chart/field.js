// A surface between scattered values, and its contour lines. Pure.

const SIZE = 64; // nodes along each side
const EDGE = 0.03; // over which the surface fades
const POWER = 3; // of the distance: how quickly a trial's say fades

// The mean of all values, the nearer the more it counts (inverse-distance weighting), at each node of
// a grid over the unit square. `trust` goes to 0 where no point is near: nothing is known there.
// points: [{x, y, value}] -> {size, values, trust}, rows by y
export function surface(points) {
  const [values, trust] = [new Float64Array(SIZE * SIZE), new Float64Array(SIZE * SIZE)];
  const reach = Math.max(0.08, Math.min(0.3, 1 / Math.sqrt(points.length)));
  for (let row = 0; row < SIZE; row += 1) {
    for (let column = 0; column < SIZE; column += 1) {
      const [x, y] = [column / (SIZE - 1), row / (SIZE - 1)];
      let [sum, weights, nearest] = [0, 0, Infinity];
      for (const point of points) {
        const square = (point.x - x) ** 2 + (point.y - y) ** 2;
        const weight = 1 / (square + 1e-9) ** (POWER / 2);
        sum += weight * point.value;
        weights += weight;
        if (square < nearest) nearest = square;
      }
      values[row * SIZE + column] = sum / weights;
      trust[row * SIZE + column] = Math.max(0, Math.min(1, (reach - Math.sqrt(nearest)) / EDGE));
    }
  }
  return { size: SIZE, values, trust };
}

// Where a surface has this value (marching squares): [[x0, y0, x1, y1], ...] in the unit square.
export function contourLine({ size, values, trust }, level) {
  const segments = [];
  for (let row = 0; row < size - 1; row += 1) {
    for (let column = 0; column < size - 1; column += 1) {
      const corners = [
        [column, row],
        [column + 1, row],
        [column + 1, row + 1],
        [column, row + 1],
      ].map(([x, y]) => ({ x, y, value: values[y * size + x], trust: trust[y * size + x] }));
      if (corners.some((one) => one.trust < 0.5)) continue;
      for (const [from, to] of cuts(corners, level))
        segments.push([from[0], from[1], to[0], to[1]].map((it) => it / (size - 1)));
    }
  }
  return segments;
}

// The lines through one cell: none, one, or at a saddle two.
function cuts(corners, level) {
  const above = corners.map(({ value }) => value >= level);
  const crossing = corners.map((a, at) => {
    const b = corners[(at + 1) % 4];
    if (above[at] === above[(at + 1) % 4]) return null;
    const share = (level - a.value) / (b.value - a.value);
    return [a.x + share * (b.x - a.x), a.y + share * (b.y - a.y)];
  });
  const found = crossing.filter(Boolean);
  if (found.length < 4) return found.length ? [found] : [];
  const middle = corners.reduce((sum, { value }) => sum + value, 0) / 4;
  const [ab, bc, cd, da] = crossing;
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
