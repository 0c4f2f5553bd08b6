// Parts that every page uses, as functions from values to nodes.

import { ApiError } from "../api.js";
import { h } from "../dom.js";
import { csv, number, percent, real } from "../format.js";
import { icon, stateShape } from "./icons.js";
import { toast } from "./toast.js";

/**
 * @import { Picture } from "./icons.js"
 *
 * @typedef {object} Looks of a button
 * @property {string} [kind] classes, with spaces
 * @property {string | null} [title]
 * @property {string | null} [label]
 * @property {boolean} [disabled]
 * @property {boolean | null} [pressed] null: it is no switch
 * @property {Picture | null} [picture]
 */

/** @param {string} state */
export function stateKind(state) {
  if (state === "ACTIVE" || state === "RUNNING") return "active";
  if (state === "QUEUED") return "queued";
  if (state === "PAUSED") return "paused";
  if (state === "COMPLETED") return "completed";
  if (state === "STOPPED") return "stopped";
  if (state === "ERROR" || state === "DELETE_FAILED") return "error";
  return state.startsWith("STOPPING") || state === "DELETING" ? "stopping" : "canceled";
}

/** @param {string} state */
export const isActive = (state) => ["ACTIVE", "RUNNING", "QUEUED"].includes(state);

/** @param {string} state */
export const isOver = (state) => ["COMPLETED", "STOPPED", "CANCELED", "ERROR", "DELETED"].includes(state);

/**
 * @param {string} state
 * @param {string} [title]
 */
export function stateBadge(state, title = "") {
  const kind = stateKind(state);
  const word = kind === "stopping" ? (state === "DELETING" ? "Deleting" : "Stopping") : sentence(state);
  return h(
    "span.state",
    { "data-kind": kind, "data-state": state, title: title || sentence(state) },
    stateShape(kind),
    h("span.word", word),
  );
}

/** @param {string} state */
const sentence = (state) => (state ? state[0] + state.slice(1).toLowerCase().replaceAll("_", " ") : "–");

export const BEST_ORDER =
  "Sorted within each metric, the best first: a loss does not compare with an accuracy";

/**
 * The best value in a table whose rows may be measured by different metrics.
 * @param {Api.Number | null} best
 * @param {string | null} metric null: the table says it already
 */
export const bestValue = (best, metric) =>
  h("span.best", best === null || !metric ? null : h("small", metric), number(real(best)));

/**
 * What is completed without ever telling how far it was has come all the way.
 * @param {Api.Number | null} reported
 * @param {string} state
 * @param {string} [label]
 */
export function progressBar(reported, state, label = "Progress") {
  const share = real(reported) ?? (state === "COMPLETED" ? 1 : null);
  return h(
    "span.progress",
    {
      role: "progressbar",
      "aria-label": label,
      "aria-valuemin": 0,
      "aria-valuemax": 100,
      "aria-valuenow": share === null ? null : Math.floor(share * 100 + 1e-9),
      "data-kind": stateKind(state),
      title: share === null ? "No progress reported" : percent(share),
    },
    h("span", { style: { width: `${(share ?? 0) * 100}%` } }),
  );
}

/**
 * @param {string} text
 * @param {(event: MouseEvent & { currentTarget: HTMLButtonElement }) => unknown} onclick
 * @param {Looks} [looks]
 */
export function button(
  text,
  onclick,
  { kind = "", title = null, label = null, disabled = false, pressed = null, picture = null } = {},
) {
  const classes = ["button", ...kind.split(" ").filter(Boolean), ...(picture && !text ? ["icon"] : [])].join(
    ".",
  );
  return h(
    `button.${classes}`,
    {
      type: "button",
      onclick,
      disabled,
      title,
      "aria-label": label ?? (text ? null : title),
      "aria-pressed": pressed === null ? null : String(pressed),
    },
    picture ? icon(picture) : null,
    text,
  );
}

/**
 * A row of buttons of which one is pressed: [{value, text, title}]
 * @template {string} Value
 * @param {string} label
 * @param {{ value: Value, text: string, title?: string }[]} options
 * @param {Value} chosen
 * @param {(value: Value) => unknown} onchoose
 */
export function choice(label, options, chosen, onchoose) {
  return h(
    "span.group",
    { role: "group", "aria-label": label },
    options.map(({ value, text, title }) =>
      button(text, () => onchoose(value), { pressed: value === chosen, title }),
    ),
  );
}

/**
 * @param {string} label
 * @param {{ value: string, text: string }[]} options
 * @param {string} chosen
 * @param {(value: string) => unknown} onchoose
 * @param {{ hideLabel?: boolean }} [how]
 */
export function select(label, options, chosen, onchoose, { hideLabel = false } = {}) {
  const list = h(
    "select.select",
    { "aria-label": label, onchange: (event) => onchoose(event.currentTarget.value) },
    options.map(({ value, text }) => h("option", { value, selected: value === chosen }, text)),
  );
  return hideLabel ? list : h("label.labelled", label, list);
}

/**
 * @param {string} title
 * @param {Ui.Child} tools
 * @param {...Ui.Child} inside
 */
export function card(title, tools, ...inside) {
  return h("section.card", { "aria-label": title }, h("header", h("h2", title), tools), inside);
}

/** @param {(readonly [Ui.Child, Ui.Child])[]} pairs */
export function facts(pairs) {
  return h(
    "dl.facts",
    pairs
      .filter((pair) => pair[1] !== null && pair[1] !== undefined && pair[1] !== "")
      .map(([name, it]) => [h("dt", name), h("dd", it)]),
  );
}

/**
 * @param {string} text
 * @param {string} [label]
 */
export function copyable(text, label = "Copy") {
  return h(
    "div.copyable",
    h("code", { tabindex: 0, "aria-label": "Command" }, text),
    button("", () => copy(text), { kind: "quiet", title: label, picture: "copy" }),
  );
}

/** @param {string} text */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied.", "good");
  } catch {
    toast("The browser blocked copying. Select the text and copy it yourself.", "bad");
  }
}

/**
 * A table that is drawn at once, as a file. rows: the first one holds the titles
 * @param {string} name
 * @param {() => unknown[][]} rows
 */
export const csvButton = (name, rows) =>
  button("CSV", () => download(`${name}.csv`, new Blob([csv(rows())], { type: "text/csv" })), {
    kind: "quiet",
    label: `Save ${name} as CSV`,
  });

/**
 * @param {string} title
 * @param {...Ui.Child} more
 */
export function empty(title, ...more) {
  return h(
    "div.empty",
    h("strong", title),
    more.map((one) => h("span", one)),
  );
}

/**
 * @param {Error} error
 * @param {() => unknown} [retry]
 */
export function problem(error, retry) {
  return h(
    "div.problem",
    { role: "alert" },
    h("strong", error.message),
    error instanceof ApiError && error.next ? h("span", error.next) : null,
    retry
      ? h(
          "a",
          {
            href: "#",
            onclick: (event) => {
              event.preventDefault();
              retry();
            },
          },
          "Try again",
        )
      : null,
  );
}

/**
 * Grey bars of the height that the content will have: nothing jumps when it arrives.
 * @param {number} rows
 * @param {number} [height]
 */
export function skeleton(rows, height = 32) {
  return h(
    "div",
    { "aria-busy": "true", "aria-label": "Loading" },
    Array.from({ length: rows }, (_, at) =>
      h(
        "div",
        { style: { height: `${height}px`, padding: "10px 16px" } },
        h("div.skeleton", { style: { width: `${90 - ((at * 17) % 40)}%` } }),
      ),
    ),
  );
}

/**
 * @param {string} name
 * @param {Blob} blob
 */
export function download(name, blob) {
  const url = URL.createObjectURL(blob);
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
