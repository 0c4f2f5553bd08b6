import assert from "node:assert/strict";
import { test } from "node:test";
import { makeScale, padded, ticks } from "../../../src/determined/dashboard/static/js/chart/scale.js";

const texts = (scale, wanted) => ticks(scale, wanted).map(({ text }) => text);

test("a pixel leads back to its value", () => {
  for (const [kind, range] of [
    ["linear", [-3, 12]],
    ["log", [1e-4, 10]],
    ["wall", [1.7e9, 1.7e9 + 60]],
  ]) {
    const scale = makeScale(kind, range, [40, 640]);
    assert.equal(scale.pixel(range[0]), 40);
    assert.equal(scale.pixel(range[1]), 640);
    const value = scale.value(250);
    assert.ok(Math.abs(scale.pixel(value) - 250) < 1e-3, kind);
  }
});

test("a log scale has no place for zero, and none of them for NaN", () => {
  const log = makeScale("log", [1, 10], [0, 1]);
  assert.deepEqual([log.fits(1), log.fits(0), log.fits(-1), log.fits(NaN)], [true, false, false, false]);
  assert.equal(makeScale("linear", [0, 1], [0, 1]).fits(Infinity), false);
});

test("a range of one value gets room on both sides", () => {
  assert.deepEqual(padded(0, 0, "linear"), [-1, 1]);
  assert.deepEqual(padded(10, 10, "linear"), [9, 11]);
  assert.deepEqual(padded(8, 8, "log"), [4, 16]);
  assert.equal(padded(Infinity, -Infinity, "linear"), null);
});

test("ticks are round numbers within the range", () => {
  assert.deepEqual(texts(makeScale("linear", [0, 1], [0, 500]), 5), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
  assert.deepEqual(texts(makeScale("linear", [-2, 2], [0, 500]), 4), ["−2", "−1", "0", "1", "2"]);
  assert.deepEqual(texts(makeScale("linear", [0, 40000], [0, 500]), 4), ["0", "10k", "20k", "30k", "40k"]);
});

test("ticks of a log scale are powers of ten, with steps between them where there are few", () => {
  assert.deepEqual(texts(makeScale("log", [1e-4, 1], [0, 500]), 6), ["1e−4", "0.001", "0.01", "0.1", "1"]);
  assert.deepEqual(texts(makeScale("log", [1, 10], [0, 500]), 6), ["1", "2", "5", "10"]);
});

test("ticks of durations are steps of a clock", () => {
  assert.deepEqual(texts(makeScale("relative", [0, 180], [0, 500]), 4), ["0 s", "1 min", "2 min", "3 min"]);
});

test("a log scale that begins at zero has no ticks, instead of infinitely many", () => {
  assert.deepEqual(ticks(makeScale("log", [0, 1], [0, 500]), 6), []);
});

test("ticks end where steps are smaller than what numbers of that size can tell", () => {
  const now = 1.7e9;
  assert.ok(ticks(makeScale("wall", [now, now + 3e-7], [0, 500]), 5).length <= 12);
  assert.ok(ticks(makeScale("linear", [1e17, 1e17 + 64], [0, 500]), 5).length <= 12);
});

test("axes of whole numbers have whole ticks", () => {
  const whole = (low, high) =>
    ticks(makeScale("linear", [low, high], [0, 100]), 6, true).map((one) => one.text);
  assert.deepEqual(whole(0.96, 3.04), ["1", "2", "3"]);
  assert.deepEqual(whole(16, 256), ["50", "100", "150", "200", "250"]);
});
