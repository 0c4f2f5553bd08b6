// Keys of the page that is shown, and those that hold everywhere.

import { h } from "./dom.js";
import { dialog } from "./widgets/dialog.js";

/**
 * @typedef {object} Key
 * @property {string} key
 * @property {string} [also] does the same
 * @property {string} what
 * @property {(event: KeyboardEvent) => unknown} run false: this key is not meant
 */

/** @type {Key[][]} */
const pages = [];

/**
 * bind([{key: "p", what: "Pause", run}]) -> a function that takes them back
 * @param {Key[]} keys
 */
export function bind(keys) {
  pages.push(keys);
  return () => pages.splice(pages.indexOf(keys), 1);
}

/** @param {EventTarget | null} node */
const typing = (node) =>
  node instanceof HTMLElement &&
  node.closest("input:not([type=checkbox]), textarea, select, [contenteditable]") !== null;

export function start() {
  bind([
    { key: "?", what: "Show keyboard shortcuts", run: help },
    { key: "t", what: "Light or dark theme", run: () => window.switchTheme() },
  ]);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && typing(event.target)) /** @type {HTMLElement} */ (event.target).blur();
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    for (const keys of [...pages].reverse()) {
      const found = keys.find((one) => one.key === event.key || one.also === event.key);
      if (found && found.run(event) !== false) {
        event.preventDefault();
        return;
      }
    }
  });
}

function help() {
  const rows = pages.flat().filter((one) => one.what);
  dialog(
    "Keys",
    [
      h(
        "dl.facts",
        rows.map((one) => [
          h("dt", h("span.key", shown(one.key)), one.also ? [" ", h("span.key", shown(one.also))] : null),
          h("dd", one.what),
        ]),
      ),
    ],
    { ok: "Close", cancel: null },
  );
}

/** @type {Record<string, string>} */
const ARROWS = { ArrowDown: "↓", ArrowUp: "↑", ArrowLeft: "←", ArrowRight: "→" };

/** @param {string} key */
const shown = (key) => ARROWS[key] ?? key;
