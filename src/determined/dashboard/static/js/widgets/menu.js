// A small sheet under a button.

import { focusOn, h, render } from "../dom.js";

/** @typedef {{ redraw(): void, close(): void }} Menu */

/**
 * open(anchor, () => nodes) -> {redraw, close}; closes by Escape or a click elsewhere
 * @param {Element} anchor
 * @param {string} label
 * @param {(menu: Menu) => Ui.Child} content
 */
export function openMenu(anchor, label, content) {
  const node = h("div.menu", { popover: "auto", role: "dialog", "aria-label": label });
  const redraw = () => render(node, content(menu));
  /** @type {Menu} */
  const menu = { redraw, close: () => node.hidePopover() };
  node.addEventListener("toggle", (event) => {
    if (/** @type {ToggleEvent} */ (event).newState === "closed") node.remove();
  });
  document.body.append(node);
  redraw();
  node.showPopover();
  const place = anchor.getBoundingClientRect();
  const left = Math.max(8, Math.min(place.left, innerWidth - node.offsetWidth - 8));
  node.style.left = `${left}px`;
  node.style.top = `${place.bottom}px`;
  node.style.maxHeight = `${Math.max(160, innerHeight - place.bottom - 16)}px`;
  focusOn(node, "input, button");
  return menu;
}

/**
 * Tick boxes with a search field: items [{key, label, kind}]
 * @param {Element} anchor
 * @param {string} label
 * @param {{ key: string, label: string, kind?: string }[]} items
 * @param {string[]} chosen
 * @param {(keys: string[]) => unknown} onchange
 */
export function openPicker(anchor, label, items, chosen, onchange) {
  let search = "";
  const ticked = new Set(chosen);
  openMenu(anchor, label, (menu) => {
    const found = items.filter((one) => one.label.toLowerCase().includes(search.toLowerCase())).slice(0, 200);
    return [
      h("input.field", {
        type: "search",
        placeholder: "Find a column",
        "aria-label": "Find a column",
        value: search,
        oninput: (event) => {
          search = event.currentTarget.value;
          menu.redraw();
        },
      }),
      found.map((one) =>
        h(
          "label",
          { key: one.key },
          h("input", {
            type: "checkbox",
            checked: ticked.has(one.key),
            onchange: (event) => {
              if (event.currentTarget.checked) ticked.add(one.key);
              else ticked.delete(one.key);
              onchange(items.map((it) => it.key).filter((key) => ticked.has(key)));
            },
          }),
          one.label,
          one.kind ? h("span.kind", one.kind) : null,
        ),
      ),
      found.length ? null : h("div.empty", "No such column."),
    ];
  });
}
