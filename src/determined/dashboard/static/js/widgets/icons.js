// Small pictures, drawn as lines on a grid of 16.

import { h } from "../dom.js";

const PATHS = {
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5z",
  help: "M6 6a2 2 0 1 1 2.8 1.8c-.5.3-.8.7-.8 1.4M8 12v.01M8 14.5a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13z",
  copy: "M5.5 5.5h7v8h-7zM3.5 10.5v-8h7",
  down: "M8 2.5v8m-3.5-3L8 11l3.5-3.5M3 13.5h10",
  columns: "M2.5 3.5h11v9h-11zM6.2 3.5v9M9.8 3.5v9",
  close: "M4 4l8 8M12 4l-8 8",
  reset: "M3.5 8a4.5 4.5 0 1 0 1.6-3.4M5 2v3h3",
  image: "M2.5 3.5h11v9h-11zM3 11l3-3 2.5 2.5L11 8l2.5 2.5M5.5 6v.01",
  external: "M6 3.5H3.5v9h9V10M9 3h4v4M13 3L7.5 8.5",
  edit: "M3 13l.7-2.8L10.5 3.4l2.1 2.1-6.8 6.8z",
  chevron: "M4.5 6.5L8 10l3.5-3.5",
  search: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM10.5 10.5l3 3",
};

/** @typedef {keyof typeof PATHS} Picture */

/** @param {Picture} name */
export function icon(name) {
  return h("svg.icon-image", { viewBox: "0 0 16 16", "aria-hidden": "true" }, h("path", { d: PATHS[name] }));
}

const SHAPES = {
  active: "M2 1l7 4-7 4z",
  queued: "M5 .5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM5 2a3 3 0 1 1 0 6 3 3 0 0 1 0-6z",
  paused: "M1.5 1h2.6v8H1.5zM5.9 1h2.6v8H5.9z",
  stopping: "M5 .8L9.2 5 5 9.2.8 5z",
  completed: "M5 .5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9z",
  stopped: "M1.2 1.2h7.6v7.6H1.2z",
  canceled: "M1 4h8v2H1z",
  error: "M1.8.6L5 3.8 8.2.6l1.2 1.2L6.2 5l3.2 3.2-1.2 1.2L5 6.2 1.8 9.4.6 8.2 3.8 5 .6 1.8z",
};

/** @param {keyof typeof SHAPES} kind */
export function stateShape(kind) {
  return h("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, h("path", { d: SHAPES[kind] }));
}
