// Questions that must be answered before anything else.

import { h } from "../dom.js";

/**
 * -> the form's values, or null when it was cancelled
 * @param {string} title
 * @param {Ui.Child} inside
 * @param {{ ok?: string, cancel?: string | null, danger?: boolean }} [words]
 * @returns {Promise<Record<string, string> | null>}
 */
export function dialog(title, inside, { ok = "OK", cancel = "Cancel", danger = false } = {}) {
  return new Promise((resolve) => {
    const box = h("dialog.dialog", { "aria-labelledby": "dialog-title" });
    const form = h(
      "form",
      { method: "dialog" },
      h("h2", { id: "dialog-title" }, title),
      inside,
      h(
        "div.bar",
        cancel ? h("button.button", { type: "button", onclick: () => box.close() }, cancel) : null,
        h(danger ? "button.button.danger" : "button.button.main", { type: "submit", value: "ok" }, ok),
      ),
    );
    box.append(form);
    box.onclose = () => {
      const values = [...new FormData(form)].map(([name, it]) => [name, String(it)]);
      resolve(box.returnValue === "ok" ? Object.fromEntries(values) : null);
      box.remove();
    };
    document.body.append(box);
    box.showModal();
  });
}

/**
 * @param {string} name
 * @param {string} label
 * @param {Record<string, unknown>} [more]
 */
export const textField = (name, label, more = {}) =>
  h("label.labelled.wide-field", label, h("input.field.long", { name, ...more }));

/** @param {string} text */
export const labelsOf = (text) =>
  text
    .split(",")
    .map((one) => one.trim())
    .filter(Boolean);

/**
 * @param {string} title
 * @param {string} text
 * @param {string} ok
 */
export const confirm = (title, text, ok) =>
  dialog(title, [h("p", text)], { ok, cancel: "Go back", danger: true });
