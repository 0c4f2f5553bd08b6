import assert from "node:assert/strict";
import { test } from "node:test";
import {
  EVERYTHING,
  groupName,
  meanCurve,
  summary,
  usualGrouping,
} from "../../../src/determined/dashboard/static/js/chart/groups.js";

const curve = (x, y) => ({ x: Float64Array.from(x), y: Float64Array.from(y), total: x.length });

test("the mean of curves has a band of one standard deviation", () => {
  const found = meanCurve([curve([1, 2], [1, 10]), curve([1, 2], [3, 10]), curve([1, 2], [5, 10])]);
  assert.deepEqual([...found.x], [1, 2]);
  assert.deepEqual([...found.y], [3, 10]);
  assert.deepEqual([...found.lo], [1, 10]);
  assert.deepEqual([...found.hi], [5, 10]);
  assert.deepEqual([...found.counts], [3, 3]);
  assert.equal(found.total, 6);
});

test("points in between count, but nothing beyond the ends of a curve", () => {
  const found = meanCurve([curve([0, 4], [0, 4]), curve([2, 6], [10, 10])]);
  assert.deepEqual([...found.x], [0, 2, 4, 6]);
  assert.deepEqual([...found.y], [0, 6, 7, 10]);
  assert.deepEqual([...found.counts], [1, 2, 2, 1]);
});

test("what is not finite is left out, and curves without points do no harm", () => {
  const found = meanCurve([curve([1, 2], [NaN, 4]), curve([1, 2], [2, Infinity]), curve([], [])]);
  assert.deepEqual([...found.y], [2, 4]);
  assert.deepEqual([...found.counts], [1, 1]);
  assert.deepEqual([...meanCurve([]).x], []);
});

test("the spread is that of a sample", () => {
  assert.deepEqual(summary([]), { mean: null, spread: null });
  assert.deepEqual(summary([2]), { mean: 2, spread: null });
  assert.equal(summary([1, 2, 4]).spread?.toFixed(6), "1.527525");
});

test("trials are grouped by seeds only where they repeat their hyperparameters", () => {
  const repeated = { ids: [1, 2, 3, 4], hparams: { lr: [1, 2, 1, 2], width: [8, 8, 8, 8] } };
  assert.equal(usualGrouping(repeated), EVERYTHING);
  assert.equal(usualGrouping({ ids: [1, 2], hparams: { lr: [1, 2] } }), "");
  assert.equal(usualGrouping({ ids: [1], hparams: {} }), "");
  assert.equal(groupName(repeated.hparams, EVERYTHING, 1), "lr = 2");
  assert.equal(groupName(repeated.hparams, "width", 1), "width = 8");
  assert.equal(groupName({ "net.units": [7] }, "net.units", 0), "units = 7");
  assert.equal(groupName({ lr: [1, 1] }, EVERYTHING, 0), "All seeds");
});
