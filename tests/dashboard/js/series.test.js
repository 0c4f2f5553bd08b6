import assert from "node:assert/strict";
import { test } from "node:test";
import {
  decode,
  envelope,
  extended,
  seriesKey,
  shownY,
} from "../../../src/determined/dashboard/static/js/chart/series.js";

// As the server packs it: the length of the header, the header, then columns that begin at multiples of 8.
function packed(columns, { n, total = n, kind = "points" }) {
  let offset = 0;
  const described = Object.entries(columns).map(([name, { type }]) => {
    const place = { name, type, offset };
    offset += Math.ceil((n * (type === "f4" ? 4 : 8)) / 8) * 8;
    return place;
  });
  const text = JSON.stringify({ series: [{ key: "1:training:loss", kind, n, total, columns: described }] });
  const header = new TextEncoder().encode(text.padEnd(Math.ceil((text.length + 4) / 8) * 8 - 4));
  const buffer = new ArrayBuffer(4 + header.length + offset);
  new DataView(buffer).setUint32(0, header.length, true);
  new Uint8Array(buffer, 4, header.length).set(header);
  described.forEach(({ name, type, offset: at }) => {
    const Kind = type === "f4" ? Float32Array : Float64Array;
    new Kind(buffer, 4 + header.length + at, n).set(columns[name].values);
  });
  return buffer;
}

test("single points are decoded, and their band is the line itself", () => {
  const columns = { x: { type: "f8", values: [1, 2, 3] }, y: { type: "f4", values: [0.5, NaN, 0.25] } };
  const [series] = decode(packed(columns, { n: 3 }));
  assert.deepEqual([...series.x], [1, 2, 3]);
  assert.deepEqual([...series.y], [0.5, NaN, 0.25]);
  assert.equal(series.lo, series.y);
  assert.equal(series.hi, series.y);
  assert.equal(series.counts, null);
  assert.equal(shownY(series, 2), 0.25);
});

test("bands are decoded with their means, ends and counts", () => {
  const columns = {
    x: { type: "f8", values: [10, 20] },
    mean: { type: "f4", values: [2, 3] },
    min: { type: "f4", values: [1, 2] },
    max: { type: "f4", values: [4, 8] },
    count: { type: "f4", values: [5, 6] },
    smooth: { type: "f4", values: [2.5, 2.75] },
  };
  const [series] = decode(packed(columns, { n: 2, total: 11, kind: "bands" }));
  assert.deepEqual(
    [series.y, series.lo, series.hi, series.counts].map((it) => [...it]),
    [
      [2, 3],
      [1, 2],
      [4, 8],
      [5, 6],
    ],
  );
  assert.equal(series.total, 11);
  assert.equal(shownY(series, 1), 2.75);
});

test("points that just came are added once, and words for numbers are numbers", () => {
  const columns = { x: { type: "f8", values: [1, 2] }, y: { type: "f8", values: [5, 4] } };
  const [series] = decode(packed(columns, { n: 2 }));
  const grown = extended(series, [2, 3, 4, 5], [9, "NaN", null, 1]);
  assert.deepEqual([...grown.x], [1, 2, 3, 4, 5]);
  assert.deepEqual([...grown.y], [5, 4, NaN, NaN, 1]);
  assert.equal(grown.lo, grown.y);
  assert.deepEqual([grown.n, grown.total], [5, 5]);
  assert.equal(extended(grown, [5], [0]), grown);
});

test("the best so far is a staircase over all curves", () => {
  const curve = (x, y) => ({ x: Float64Array.from(x), lo: Float64Array.from(y), hi: Float64Array.from(y) });
  const curves = [curve([1, 3], [5, 2]), curve([2, 4], [4, NaN])];
  const least = envelope(curves, true);
  assert.deepEqual([...least.x], [1, 2, 2, 3, 3, 3]);
  assert.deepEqual([...least.y], [5, 5, 4, 4, 2, 2]);
  const greatest = envelope(curves, false);
  assert.deepEqual([...greatest.y], [5, 5]);
  assert.equal(envelope([], true).x.length, 0);
});

test("keys of series keep names with any letters apart", () => {
  assert.equal(seriesKey(3, { group: "training", name: "a:b c" }), "3:training:a%3Ab%20c");
  assert.equal(seriesKey(3, { group: "training", name: "loss" }, true), "3:training:loss:batches");
});
