import assert from "node:assert/strict";
import { test } from "node:test";
import { LogSource } from "../../../src/determined/dashboard/static/js/widgets/log_source.js";
import { Paged } from "../../../src/determined/dashboard/static/js/widgets/paged.js";

// A server with 250 rows, which answers at once and keeps what it was asked for.
function rows(total = 250) {
  const asked = [];
  const fetch = async (offset, limit) => {
    asked.push(offset);
    const length = Math.max(0, Math.min(limit, total - offset));
    return { total, rows: Array.from({ length }, (_, at) => ({ id: offset + at })) };
  };
  return { asked, fetch };
}

test("pages are fetched when they come in sight, each once", async () => {
  const server = rows();
  const paged = new Paged(server.fetch, () => {});
  await paged.reset();
  assert.deepEqual([paged.total, paged.loaded.length], [250, 100]);
  paged.need(90, 110);
  paged.need(90, 110);
  await Promise.resolve();
  assert.deepEqual(server.asked, [0, 100]);
  assert.equal(paged.rows[150].id, 150);
});

test("after a refresh far pages are asked for again when they come in sight", async () => {
  const server = rows();
  const paged = new Paged(server.fetch, () => {});
  await paged.reset();
  paged.need(100, 250);
  await Promise.resolve();
  await paged.refresh(0, 50);
  assert.equal(paged.rows[150], undefined);
  assert.equal(paged.rows[50].id, 50);
  paged.need(120, 140);
  assert.deepEqual(server.asked.at(-1), 100);
});

test("answers to an older question are dropped", async () => {
  const waiting = [];
  const paged = new Paged(
    () => new Promise((resolve) => waiting.push(resolve)),
    () => {},
  );
  const [first, second] = [paged.reset(), paged.reset()];
  waiting[1]({ total: 1, rows: ["new"] });
  waiting[0]({ total: 1, rows: ["old"] });
  await Promise.all([first, second]);
  assert.deepEqual(paged.rows, ["new"]);
});

// A log of 40 lines of which every tenth fits; the server looks through 7 lines at a time.
const lines = Array.from({ length: 40 }, (_, at) => ({ line: at + 1 }));
async function grep({ from_line: from, tail }) {
  const end = tail ? (from ?? 40) : Math.min(40, from + 6);
  const start = tail ? Math.max(1, end - 6) : from;
  return {
    lines: lines.filter(({ line }) => line >= start && line <= end && line % 10 === 0),
    total: 40,
    next: end < 40 ? end + 1 : null,
    previous: start > 1 ? start - 1 : null,
  };
}

test("a log is read from its end, over stretches without a line that fits", async () => {
  const seen = [];
  const source = new LogSource(grep, (at) => seen.push(at));
  const shown = (await source.open()).map(({ line }) => line);
  assert.deepEqual(shown, [40]);
  assert.deepEqual([source.next, source.last, source.total], [null, 40, 40]);
  const older = [];
  while (source.previous !== null) older.push(...(await source.older()).map(({ line }) => line));
  assert.deepEqual(older, [30, 20, 10]);
  assert.ok(seen.some((at) => at !== null) && seen.at(-1) === null);
  assert.deepEqual(await source.older(), []);
});

test("a log is opened around a line and read on from there", async () => {
  const source = new LogSource(grep, () => {});
  assert.deepEqual(
    (await source.open(15)).map(({ line }) => line),
    [10],
  );
  assert.deepEqual(
    (await source.newer()).map(({ line }) => line),
    [20],
  );
  assert.equal(source.last, 20);
});
