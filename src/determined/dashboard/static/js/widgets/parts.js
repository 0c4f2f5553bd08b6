// Parts that every page uses, as functions from values to nodes.

import { h } from "../dom.js";
import { csv, percent } from "../format.js";
import { icon, stateShape } from "./icons.js";
import { toast } from "./toast.js";

export function stateKind(state) {
  if (state === "ACTIVE" || state === "RUNNING") return "active";
  if (state === "QUEUED") return "queued";
  if (state === "PAUSED") return "paused";
  if (state === "COMPLETED") return "completed";
  if (state === "ERROR" || state === "DELETE_FAILED") return "error";
  return state?.startsWith("STOPPING") || state === "DELETING" ? "stopping" : "canceled";
}

export const isActive = (state) => ["ACTIVE", "RUNNING", "QUEUED"].includes(state);

export const isOver = (state) => ["COMPLETED", "CANCELED", "ERROR", "DELETED"].includes(state);

export function stateBadge(state, title = "") {
  const kind = stateKind(state);
  const word = kind === "stopping" ? (state === "DELETING" ? "Deleting" : "Stopping") : sentence(state);
  return h(
    "span.state",
    { "data-kind": kind, "data-state": state, title: title || sentence(state) },
    stateShape(kind),
    word,
  );
}

const sentence = (state) => (state ? state[0] + state.slice(1).toLowerCase().replaceAll("_", " ") : "–");

// What is completed without ever telling how far it was has come all the way.
export function progressBar(reported, state, label = "Progress") {
  const share = reported ?? (state === "COMPLETED" ? 1 : null);
  const known = share !== null && share !== undefined;
  return h(
    "span.progress",
    {
      role: "progressbar",
      "aria-label": label,
      "aria-valuemin": 0,
      "aria-valuemax": 100,
      "aria-valuenow": known ? Math.floor(share * 100 + 1e-9) : null,
      "data-kind": stateKind(state),
      title: known ? percent(share) : "No progress reported",
    },
    h("span", { style: { width: `${(share ?? 0) * 100}%` } }),
  );
}

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

// A row of buttons of which one is pressed: [{value, text, title}]
export function choice(label, options, chosen, onchoose) {
  return h(
    "span.group",
    { role: "group", "aria-label": label },
    options.map(({ value, text, title }) =>
      button(text, () => onchoose(value), { pressed: value === chosen, title }),
    ),
  );
}

export function select(label, options, chosen, onchoose, { hideLabel = false } = {}) {
  const list = h(
    "select.select",
    { "aria-label": label, onchange: (event) => onchoose(event.target.value) },
    options.map(({ value, text }) => h("option", { value, selected: value === chosen }, text)),
  );
  return hideLabel ? list : h("label.labelled", label, list);
}

export function card(title, tools, ...inside) {
  return h("section.card", { "aria-label": title }, h("header", h("h2", title), tools), inside);
}

export function facts(pairs) {
  return h(
    "dl.facts",
    pairs
      .filter((pair) => pair && pair[1] !== null && pair[1] !== undefined && pair[1] !== "")
      .map(([name, it]) => [h("dt", name), h("dd", it)]),
  );
}

export function copyable(text, label = "Copy") {
  return h(
    "div.copyable",
    h("code", { tabindex: 0, "aria-label": "Command" }, text),
    button("", () => copy(text), { kind: "quiet", title: label, picture: "copy" }),
  );
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied.", "good");
  } catch {
    toast("The browser blocked copying. Select the text and copy it yourself.", "bad");
  }
}

// A table that is drawn at once, as a file. rows: the first one holds the titles
export const csvButton = (name, rows) =>
  button("CSV", () => download(`${name}.csv`, new Blob([csv(rows())], { type: "text/csv" })), {
    kind: "quiet",
    label: `Save ${name} as CSV`,
  });

export function empty(title, ...more) {
  return h(
    "div.empty",
    h("strong", title),
    more.map((one) => h("span", one)),
  );
}

export function problem(error, retry) {
  return h(
    "div.problem",
    { role: "alert" },
    h("strong", error.message),
    error.next ? h("span", error.next) : null,
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

// Grey bars of the height that the content will have: nothing jumps when it arrives.
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

export function download(name, blob) {
  const url = URL.createObjectURL(blob);
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
