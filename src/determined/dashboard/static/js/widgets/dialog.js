// Questions that must be answered before anything else.

import { h } from "../dom.js";

// -> the form's values, or null when it was cancelled
export function dialog(title, inside, { ok = "OK", cancel = "Cancel", danger = false } = {}) {
  return new Promise((resolve) => {
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
    const box = h("dialog.dialog", { "aria-labelledby": "dialog-title" }, form);
    box.onclose = () => {
      resolve(box.returnValue === "ok" ? Object.fromEntries(new FormData(form)) : null);
      box.remove();
    };
    document.body.append(box);
    box.showModal();
  });
}

export const textField = (name, label, more = {}) =>
  h("label.labelled.wide-field", label, h("input.field.long", { name, ...more }));

export const labelsOf = (text) =>
  text
    .split(",")
    .map((one) => one.trim())
    .filter(Boolean);

export const confirm = (title, text, ok) =>
  dialog(title, [h("p", text)], { ok, cancel: "Go back", danger: true });
