// Short messages at the edge: what is under way stays until its end is told, errors until they are closed.

import { ApiError } from "../api.js";
import { byId, h, render } from "../dom.js";

/** @typedef {"info" | "busy" | "good" | "bad"} Kind */
/** @typedef {ReturnType<typeof toast>} Toast */

const SECONDS = 5;

/**
 * kind: info, busy, good or bad -> {say(more, kind), close()}: pausing ... paused
 * @param {Ui.Child} text
 * @param {Kind} [kind]
 */
export function toast(text, kind = "info") {
  const node = h("div.toast");
  let timer = 0;
  /**
   * @param {Ui.Child} more
   * @param {Kind} [next]
   */
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
    if (!node.isConnected) byId("toasts").append(node);
    if (!stays) timer = setTimeout(() => node.remove(), SECONDS * 1000);
  };
  say(text, kind);
  return { say, close: () => node.remove() };
}

/** @param {unknown} error */
export function wordsOf(error) {
  const { message } = /** @type {Error} */ (error);
  return error instanceof ApiError && error.next ? `${message} ${error.next}` : message;
}

/**
 * Does something and says how it went; null when it did not go.
 * @template Answer
 * @param {() => Promise<Answer>} work
 * @param {string | ((answer: Answer) => string)} said
 */
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
