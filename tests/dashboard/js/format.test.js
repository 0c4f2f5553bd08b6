import assert from "node:assert/strict";
import { test } from "node:test";
import * as format from "../../../src/determined/dashboard/static/js/format.js";

test("numbers keep four digits, and use powers of ten where they are long", () => {
  const { number } = format;
  assert.deepEqual(
    [0.123456, 1234567, 12345678, 0.00012345, -0.5, 0].map((it) => number(it)),
    ["0.1235", "1,234,567", "1.23e7", "1.23e−4", "−0.5", "0"],
  );
  assert.deepEqual(
    [null, undefined, "", NaN, "Infinity", -Infinity].map((it) => number(it)),
    ["–", "–", "–", "NaN", "∞", "−∞"],
  );
});

test("numbers of the API may be words", () => {
  assert.deepEqual(["NaN", "Infinity", "-Infinity", "3", null, 2].map(format.real), [
    NaN,
    Infinity,
    -Infinity,
    null,
    null,
    2,
  ]);
  assert.deepEqual([1, NaN, "NaN", null].map(format.finite), [1, null, null, null]);
});

test("values of hyperparameters fit in a line", () => {
  assert.deepEqual([0.1, "adam", [1, 2], { a: 1 }, true, null].map(format.value), [
    "0.1",
    "adam",
    "[1,2]",
    '{"a":1}',
    "true",
    "–",
  ]);
});

test("a share is all only when it is", () => {
  assert.deepEqual([0, 0.001, 0.5, 0.999, 1, null].map(format.percent), [
    "0%",
    "<1%",
    "50%",
    "99%",
    "100%",
    "–",
  ]);
});

test("sizes and durations have a unit that fits", () => {
  assert.deepEqual([0, 999, 1500, 25e6, 3e12].map(format.bytes), [
    "0 B",
    "999 B",
    "1.5 kB",
    "25 MB",
    "3.0 TB",
  ]);
  assert.deepEqual([0, 0.2, 59, 61, 3720, 90000, "NaN".length, null].map(format.duration), [
    "0 s",
    "<1 s",
    "59 s",
    "1 min 1 s",
    "1 h 2 min",
    "1 d 1 h",
    "3 s",
    "–",
  ]);
});

test("the past is told in words, and after a week as a date", () => {
  const now = 1_700_000_000;
  assert.deepEqual(
    [10, 90, 7200, 86400, 3 * 86400].map((it) => format.ago(now - it, now)),
    ["just now", "2 min ago", "2 h ago", "1 day ago", "3 days ago"],
  );
  assert.match(format.ago(now - 30 * 86400, now), /^\d{4}-\d{2}-\d{2}$/);
});

test("a metric's group is not said twice, and counters come last", () => {
  assert.equal(format.metricTitle({ group: "validation", name: "loss" }), "validation loss");
  assert.equal(format.metricTitle({ group: "validation", name: "validation_loss" }), "validation_loss");
  const metrics = [{ name: "batches" }, { name: "loss" }, { name: "epochs" }, { name: "accuracy" }];
  assert.deepEqual(
    format.measuredFirst(metrics).map(({ name }) => name),
    ["loss", "accuracy", "batches", "epochs"],
  );
});

test("a file of values quotes what it must and holds no formulas", () => {
  const rows = [
    ["name", "note"],
    ['a,"b"', "=SUM(A1)"],
    [-1.5, { lr: 1 }],
    [null, "two\nlines"],
  ];
  assert.equal(
    format.csv(rows),
    'name,note\r\n"a,""b""",\'=SUM(A1)\r\n-1.5,"{""lr"":1}"\r\n,"two\nlines"\r\n',
  );
});

test("a part of an address that cannot be read stays as it is", () => {
  assert.deepEqual(["a%20b", "50%"].map(format.decoded), ["a b", "50%"]);
});
