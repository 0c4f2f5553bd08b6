// A small sheet under a button.

import { h, render } from "../dom.js";

// open(anchor, () => nodes) -> {redraw, close}; closes by Escape or a click elsewhere
export function openMenu(anchor, label, content) {
  const node = h("div.menu", { popover: "auto", role: "dialog", "aria-label": label });
  const redraw = () => render(node, content(menu));
  const menu = { redraw, close: () => node.hidePopover() };
  node.addEventListener("toggle", (event) => {
    if (event.newState === "closed") node.remove();
  });
  document.body.append(node);
  redraw();
  node.showPopover();
  const place = anchor.getBoundingClientRect();
  const left = Math.max(8, Math.min(place.left, innerWidth - node.offsetWidth - 8));
  node.style.left = `${left}px`;
  node.style.top = `${place.bottom}px`;
  node.style.maxHeight = `${Math.max(160, innerHeight - place.bottom - 16)}px`;
  node.querySelector("input, button")?.focus();
  return menu;
}

// Tick boxes with a search field: items [{key, label, kind}]
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
          search = event.target.value;
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
              if (event.target.checked) ticked.add(one.key);
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
