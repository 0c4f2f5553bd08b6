import assert from "node:assert/strict";
import { test } from "node:test";
import { replayCommand } from "../../../src/determined/dashboard/static/js/widgets/replay.js";

const trial = { id: 7, steps: 9000 };

test("the span in view becomes whole batches that the trial has", () => {
  const command = (query) => replayCommand(trial, query);
  assert.equal(command({ from: "7989.5", to: "8010.2" }), "det trial replay 7 --batches 7990:8010");
  assert.equal(command({ from: "-20", to: "99999" }), "det trial replay 7 --batches 1:9000");
  assert.equal(command({ from: "8000.2", to: "8000.7" }), "det trial replay 7 --batches 8001:8001");
});

test("without a span, or on an axis of time, it is all batches", () => {
  assert.equal(replayCommand(trial, {}), "det trial replay 7 --batches 1:9000");
  const zoomed = { from: "10", to: "20", x: "relative" };
  assert.equal(replayCommand(trial, zoomed), "det trial replay 7 --batches 1:9000");
});
