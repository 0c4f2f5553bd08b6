// Differences and source text, line by line.

import { h } from "../dom.js";

const MOST = 5000;

/**
 * @param {string} text
 * @param {string} label
 */
export function diffView(text, label) {
  const lines = text.split("\n");
  return h(
    "div.diff",
    { tabindex: 0, role: "region", "aria-label": label },
    lines.slice(0, MOST).map((line) => h("div", { class: kindOf(line) }, line || " ")),
    lines.length > MOST ? h("div.place", `… ${lines.length - MOST} more lines`) : null,
  );
}

/** @param {string} line */
function kindOf(line) {
  if (line.startsWith("+++") || line.startsWith("---") || line.startsWith("@@")) return "place";
  return line.startsWith("+") ? "add" : line.startsWith("-") ? "remove" : "";
}

/**
 * @param {string} text
 * @param {string} label
 */
export function codeView(text, label) {
  const lines = text.replace(/\n$/, "").split("\n");
  return h(
    "div.code",
    { tabindex: 0, role: "region", "aria-label": label },
    lines.slice(0, MOST).map((line, at) => h("div", { "data-line": at + 1 }, line || " ")),
    lines.length > MOST ? h("div.place", `… ${lines.length - MOST} more lines: download to see them`) : null,
  );
}
