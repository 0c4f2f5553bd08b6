import assert from "node:assert/strict";
import { test } from "node:test";
import { path, query } from "../../../src/determined/dashboard/static/js/api.js";
import { curveOptions, everyBatch } from "../../../src/determined/dashboard/static/js/chart/controls.js";
import {
  brushSentence,
  brushText,
  passes,
  readBrushes,
} from "../../../src/determined/dashboard/static/js/chart/parallel.js";
import { shownRange } from "../../../src/determined/dashboard/static/js/chart/plot.js";
import { changedQuery, placeOf, route } from "../../../src/determined/dashboard/static/js/router.js";
import { filterParams } from "../../../src/determined/dashboard/static/js/widgets/log_filters.js";
import { marker } from "../../../src/determined/dashboard/static/js/widgets/log_view.js";

route("/models/:name", async () => ({}));
route("/trials/:id/:tab?", async () => ({}));

test("an address names its page, parts and state", () => {
  const place = placeOf("/trials/7/logs", "?line=3&search=a%20b");
  assert.equal(place.pattern, "/trials/:id/:tab?");
  assert.deepEqual(place.params, { id: "7", tab: "logs" });
  assert.deepEqual(place.query, { line: "3", search: "a b" });
  assert.deepEqual(placeOf("/trials/7/", "").params, { id: "7" });
  assert.deepEqual(placeOf("/models/a%2Fb", "").params, { name: "a/b" });
  assert.equal(placeOf("/nowhere", "").pattern, null);
});

test("changes of the state leave out what is empty", () => {
  assert.equal(changedQuery("?a=1&b=2", { b: "", c: true, d: 0, e: null }), "a=1&c=1&d=0");
  assert.equal(changedQuery("", { search: "x & y" }), "search=x+%26+y");
});

test("questions leave out what is empty, and paths escape their parts", () => {
  assert.equal(query({ offset: 0, search: "", state: null, order: undefined, tail: 1 }), "offset=0&tail=1");
  assert.equal(path("models", "a/b", "versions", 2), "/api/models/a%2Fb/versions/2");
});

test("brushes survive the address, and what cannot be read is dropped", () => {
  const brushes = { lr: [0.0012345678, 0.1], "a:b;c": [-1, 2] };
  assert.deepEqual(readBrushes(brushText(brushes)), { lr: [0.00123457, 0.1], "a:b;c": [-1, 2] });
  assert.deepEqual(readBrushes("lr:1~2~3;:1~2;x:a~b;y:4"), {});
  assert.deepEqual(readBrushes(undefined), {});
});

test("a trial passes where all of its values lie in the brushes", () => {
  const numbers = { name: "lr", title: "lr", kind: "log", values: [0.1, null, 5] };
  const words = {
    name: "opt",
    title: "opt",
    kind: "category",
    values: ["sgd", "adam"],
    categories: ["adam", "sgd"],
  };
  const brushes = { lr: [0.01, 1], opt: [-0.4, 0.4] };
  assert.deepEqual(
    [0, 1, 2].map((at) => passes(numbers, at, brushes)),
    [true, false, false],
  );
  assert.deepEqual(
    [0, 1].map((at) => passes(words, at, brushes)),
    [false, true],
  );
  assert.equal(passes(numbers, 1, {}), true);
  assert.equal(brushSentence([numbers, words], brushes), "lr: 0.01 … 1 · opt: adam");
});

test("the switches of curves are read from the address", () => {
  const options = curveOptions({ smooth: "0.9", logy: "1", from: "10" });
  assert.deepEqual(
    [options.x, options.smooth, options.logy, options.logx, options.from],
    ["steps", 0.9, true, false, "10"],
  );
  assert.deepEqual([everyBatch({}), everyBatch({ reports: "1" })], [true, false]);
});

test("a range from zero is not shown on a log axis", () => {
  assert.equal(shownRange({ kind: "log", title: "", range: [0, 10] }), null);
  assert.deepEqual(shownRange({ kind: "linear", title: "", range: [0, 10] }), [0, 10]);
  assert.equal(shownRange({ kind: "log", title: "", range: null }), null);
});

test("filters of a log hold only what every log can be asked for", () => {
  const asked = filterParams({ search: "x", regex: "1", level: "ERROR", other: "3" });
  assert.deepEqual(Object.keys(asked), ["search", "level", "rank", "since", "until"]);
});

test("what is searched for is marked as text or as an expression", () => {
  assert.equal("a.b axb".replaceAll(marker("A.B", false), "-"), "- axb");
  assert.equal("a.b axb".replaceAll(marker("a.b", true), "-"), "- -");
  assert.equal(marker("(", true), null);
  assert.equal(marker("", false), null);
});
