// Short messages at the edge. Errors stay until they are closed.

import { h } from "../dom.js";

export function toast(text, kind = "info") {
  const node = h("div.toast", { "data-kind": kind, role: kind === "bad" ? "alert" : null }, h("span", text));
  const close = () => node.remove();
  if (kind === "bad")
    node.append(
      h("button.button.quiet", { type: "button", onclick: close, "aria-label": "Close message" }, "×"),
    );
  else setTimeout(close, 5000);
  document.getElementById("toasts").append(node);
  // The caller may say more about the same thing later: pausing ... paused.
  return {
    say(more, nextKind = kind) {
      if (!node.isConnected) return toast(more, nextKind);
      node.firstChild.textContent = more;
      node.dataset.kind = nextKind;
      return null;
    },
  };
}
