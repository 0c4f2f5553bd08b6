// The bar at the top: where one is, how many slots work, whether the view is live.

import { getSession } from "./api.js";
import { byId, h, render } from "./dom.js";
import { listen } from "./live.js";
import { button, isActive } from "./widgets/parts.js";

/** @import { State } from "./live.js" */

const PLACES = [
  ["/", "Experiments"],
  ["/trials", "Trials"],
  ["/models", "Models"],
  ["/queue", "Queue"],
];

/** @type {Record<State, string>} */
const STREAMS = {
  live: "Live",
  lost: "Reconnecting …",
  locked: "Access denied",
  connecting: "Connecting …",
};
const LOCKED =
  "This browser no longer has access: the dashboard's token has changed, or it now serves another home. Run `det dashboard` and open the address that it prints.";

/** @type {Api.SessionJson | null} */
let session = null;
/** @type {State} */
let stream = "connecting";
let path = "/";
let isRefreshing = false;

export function startShell() {
  listen({
    state: (next) => {
      stream = next;
      draw();
    },
    change: (change) => {
      if (session && change.supervisor) session.supervisor = { ...session.supervisor, ...change.supervisor };
      if (!isRefreshing) setTimeout(refresh, 1000);
      isRefreshing = true;
    },
    again: refresh,
  });
  refresh();
}

export function showPlace() {
  path = location.pathname;
  draw();
}

async function refresh() {
  isRefreshing = false;
  try {
    session = await getSession();
  } catch {
    return; // the banner of the stream says it already
  }
  draw();
}

/** @param {string} href */
function current(href) {
  if (href === "/")
    return (
      path === "/" || path.startsWith("/experiments") || path.startsWith("/trials/") || path === "/compare"
    );
  return href === "/trials" ? path === href : path.startsWith(href);
}

function draw() {
  const slots = session?.slots;
  render(
    byId("top"),
    h(
      "a.brand",
      { href: "/", "aria-label": "determined, all experiments" },
      h("img", { src: "/static/icon.svg", alt: "" }),
      h("span", "determined"),
    ),
    h(
      "nav",
      { "aria-label": "Places" },
      PLACES.map(([href, text]) => h("a", { href, "aria-current": current(href) ? "page" : null }, text)),
    ),
    h("span.push"),
    slots
      ? h(
          "a.slots",
          { href: "/queue", title: `${slots.used} of ${slots.total} slots work` },
          h(
            "span.slot-marks",
            { "aria-hidden": "true" },
            slots.total <= 16
              ? Array.from({ length: slots.total }, (_, at) => h("span", { "data-used": at < slots.used }))
              : null,
          ),
          `${slots.used}/${slots.total}`,
          h("span.wide", " slots"),
        )
      : null,
    h("span.stream", { "data-stream": stream, role: "status" }, h("span.wide", STREAMS[stream])),
    button("", () => window.switchTheme(), { kind: "quiet", title: "Light or dark theme", picture: "moon" }),
    button("", () => document.dispatchEvent(new KeyboardEvent("keydown", { key: "?" })), {
      kind: "quiet",
      title: "Keys",
      picture: "help",
    }),
  );
  render(byId("banner"), banner());
}

function banner() {
  if (stream === "locked") return LOCKED;
  if (stream === "lost") return "The dashboard is not responding; the page may be out of date. Retrying …";
  if (session && !session.supervisor.alive && hasWork(session)) return session.supervisor.text;
  return null;
}

/**
 * Without work the supervisor ends by itself: that is no news.
 * @param {Api.SessionJson} session
 */
function hasWork({ counts }) {
  return Object.entries(counts).some(
    ([state, n]) => n > 0 && (isActive(state) || state.startsWith("STOPPING") || state === "DELETING"),
  );
}
