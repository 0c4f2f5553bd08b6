import assert from "node:assert/strict";
import { test } from "node:test";
import { contourLine, surface } from "../../../src/determined/dashboard/static/js/chart/field.js";
import {
  axesOf,
  byValue,
  goodness,
  importantFirst,
  pairOf,
  placesOf,
  rampMarks,
} from "../../../src/determined/dashboard/static/js/pages/search/points.js";
import { shownColumns } from "../../../src/determined/dashboard/static/js/widgets/trial_columns.js";

const points = {
  ids: [1, 2, 3],
  states: ["COMPLETED", "COMPLETED", "ERROR"],
  values: [0.5, "NaN", 0.25],
  steps: [10, 10, 3],
  hparams: { lr: [0.1, 0.01, 0.001], batch: [8, 64, 8], opt: ["b10", "b9", null], same: [1, 1, 1] },
};
const declared = [
  { name: "lr", type: "log" },
  { name: "batch", type: "categorical" },
];

test("hyperparameters that differ become axes of their kind", () => {
  const axes = axesOf(points, declared);
  assert.deepEqual(
    axes.map(({ name, kind }) => [name, kind]),
    [
      ["lr", "log"],
      ["batch", "category"],
      ["opt", "category"],
    ],
  );
  assert.deepEqual(axes[2].categories, ["b9", "b10"]);
});

test("the most important hyperparameters come first, the others keep their order", () => {
  const order = Object.keys(importantFirst(points.hparams, { opt: 0.7, batch: 0.2 }));
  assert.deepEqual(order, ["opt", "batch", "lr", "same"]);
});

test("categories have places, and a missing one has none", () => {
  const [, batch, opt] = axesOf(points, declared);
  assert.deepEqual([...placesOf(batch)], [0, 1, 0]);
  assert.deepEqual([...placesOf(opt)], [1, 0, NaN]);
});

test("nothing is interpolated between categories", () => {
  const land = surface(
    [
      { x: 0.25, y: 0, value: 0 },
      { x: 0.25, y: 1, value: 0 },
      { x: 0.75, y: 0.5, value: 1 },
    ],
    2,
  );
  const seen = new Set();
  land.values.forEach((value, at) => {
    if (land.trust[at] > 0) seen.add(`${at % land.size < land.size / 2 ? "left" : "right"} ${value}`);
  });
  assert.deepEqual([...seen].sort(), ["left 0", "right 1"]);
  assert.equal(contourLine(land, 0.5).length, 0); // no line where nothing is known
});

test("colours stand for the worst, the middle and the best", () => {
  assert.deepEqual(
    rampMarks([3, 1, null, 2, "NaN"], true).map(({ share, text }) => [share, text]),
    [
      [0, "3"],
      [0.5, "2"],
      [1, "1"],
    ],
  );
  assert.deepEqual(rampMarks([1], true), []);
});

test("trials are ranked from worst to best, those without a value not at all", () => {
  assert.deepEqual(goodness(points.values, true), [0, null, 1]);
  assert.deepEqual(goodness(points.values, false), [1, null, 0]);
  assert.deepEqual(goodness([3], true), [1]);
});

test("two axes are chosen by the address, and never the same one twice", () => {
  const axes = [{ name: "a" }, { name: "b" }, { name: "c" }];
  const names = (query) => pairOf(axes, query)?.map(({ name }) => name);
  assert.deepEqual(names({}), ["a", "b"]);
  assert.deepEqual(names({ sx: "c", sy: "a" }), ["c", "a"]);
  assert.deepEqual(names({ sx: "b", sy: "b" }), ["b", "a"]);
  assert.equal(pairOf([{ name: "a" }], {}), null);
});

test("what has no value comes last in either order", () => {
  const values = [3, null, 1, NaN, "x", 2];
  const sorted = (sign) => [...values].sort((a, b) => byValue(a, b, sign));
  assert.deepEqual(sorted(1).slice(0, 4), [1, 2, 3, "x"]);
  assert.deepEqual(sorted(-1).slice(0, 4), ["x", 3, 2, 1]);
});

test("columns of a table are those that were chosen, or those in which rows differ", () => {
  const column = (key, more) => ({ key, title: key, cell: () => "", plain: (row) => row[key], ...more });
  const all = [
    column("id", { always: true }),
    column("rung", { rare: true }),
    column("owner", { rare: true }),
    column("created", { hidden: true }),
  ];
  const rows = [
    { id: 1, rung: 1, owner: "ada" },
    { id: 2, rung: 2, owner: "ada" },
  ];
  const keys = (chosen) => shownColumns(all, rows, chosen).map(({ key }) => key);
  assert.deepEqual(keys(undefined), ["id", "rung"]);
  assert.deepEqual(keys("created"), ["id", "created"]);
});

test("a contour line lies where the surface has its value", () => {
  const corners = [0, 0.5, 1].flatMap((x) => [0, 0.5, 1].map((y) => ({ x, y, value: x })));
  const land = surface(corners);
  const segments = contourLine(land, 0.5);
  assert.ok(segments.length > 8);
  for (const [x0, , x1] of segments) assert.ok(Math.abs(x0 - 0.5) < 0.2 && Math.abs(x1 - 0.5) < 0.2);
  assert.deepEqual(contourLine(land, 2), []);
});

test("far from all points a surface is not trusted, and thousands are drawn as their means", () => {
  const { size, trust } = surface([{ x: 0, y: 0, value: 1 }]);
  assert.equal(trust[0], 1);
  assert.equal(trust[size * size - 1], 0);
  const many = Array.from({ length: 2000 }, (_, at) => ({
    x: (at % 50) / 49,
    y: Math.floor(at / 50) / 39,
    value: 3,
  }));
  assert.ok(surface(many).values.every((it) => Math.abs(it - 3) < 1e-9));
});
