// Short messages at the edge: what is under way stays until its end is told, errors until they are closed.

import { h, render } from "../dom.js";

const SECONDS = 5;

// kind: info, busy, good or bad -> {say(more, kind), close()}: pausing ... paused
export function toast(text, kind = "info") {
  const node = h("div.toast");
  let timer = 0;
  const say = (more, next = kind) => {
    clearTimeout(timer);
    node.dataset.kind = next;
    node.setAttribute("role", next === "bad" ? "alert" : "status");
    const stays = next === "bad" || next === "busy";
    render(
      node,
      h("span", more),
      stays
        ? h(
            "button.button.quiet",
            { type: "button", onclick: () => node.remove(), "aria-label": "Close message" },
            "×",
          )
        : null,
    );
    if (!node.isConnected) document.getElementById("toasts").append(node);
    if (!stays) timer = setTimeout(() => node.remove(), SECONDS * 1000);
  };
  say(text, kind);
  return { say, close: () => node.remove() };
}

export const wordsOf = (error) => [error.message, error.next].filter(Boolean).join(" ");

// Does something and says how it went; null when it did not go.
export async function tried(work, said) {
  try {
    const answer = await work();
    toast(typeof said === "function" ? said(answer) : said, "good");
    return answer;
  } catch (error) {
    toast(wordsOf(error), "bad");
    return null;
  }
}
