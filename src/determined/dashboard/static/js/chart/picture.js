// Charts as picture files: the ground, what the chart draws, and its name below.

import { h } from "../dom.js";
import { button, download } from "../widgets/parts.js";
import { inkOf } from "./paint.js";
import { token } from "./palette.js";

const DENSE = 2;
const FOOT = 28;

/**
 * paint(ink, dense) draws the chart in its own size
 * @param {string} label
 * @param {number} width
 * @param {number} height
 * @param {(ink: CanvasRenderingContext2D, dense: number) => void} paint
 * @returns {Promise<Blob>}
 */
export function pictureOf(label, width, height, paint) {
  const canvas = h("canvas");
  canvas.width = width * DENSE;
  canvas.height = (height + FOOT) * DENSE;
  const ink = inkOf(canvas);
  paint(ink, DENSE);
  ink.setTransform(DENSE, 0, 0, DENSE, 0, 0);
  Object.assign(ink, { fillStyle: token("text"), font: `12px ${token("font")}` });
  Object.assign(ink, { textAlign: "left", textBaseline: "alphabetic" });
  ink.fillText(label, 16, height + 16);
  ink.globalCompositeOperation = "destination-over";
  ink.fillStyle = token("surface");
  ink.fillRect(0, 0, width, height + FOOT);
  return new Promise((resolve, reject) =>
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("The browser made no picture of it.")))),
  );
}

/**
 * chart: anything with a method `picture`
 * @param {string} title
 * @param {{ picture(): Promise<Blob> }} chart
 */
export const pictureButton = (title, chart) =>
  button("", async () => download(`${title.replace(/[^\w.-]+/g, "-")}.png`, await chart.picture()), {
    kind: "quiet",
    title: `Save ${title} as PNG`,
    picture: "image",
  });
