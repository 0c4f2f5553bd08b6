// Which page the address names. All state of a view lives in the query string, so that an address
// is all one needs to send to a colleague, and Back undoes the last step.

import { decoded } from "./format.js";

/** @import { Page } from "./page.js" */

/**
 * @typedef {{ open(place: Place): Page }} PageModule
 *
 * @typedef {object} Route
 * @property {string} pattern
 * @property {string[]} names
 * @property {RegExp} expression
 * @property {() => Promise<PageModule>} load
 *
 * @typedef {object} Place where the reader is
 * @property {string | null} pattern
 * @property {Record<string, string>} params without those that the address leaves out
 * @property {Ui.Query} query
 * @property {() => Promise<PageModule>} load
 */

/** @type {Route[]} */
const routes = [];
/** @type {() => unknown} */
let arrived = () => {};

/**
 * route("/trials/:id/:tab?", () => import("./pages/trial.js"))
 * @param {string} pattern
 * @param {Route["load"]} load
 */
export function route(pattern, load) {
  /** @type {string[]} */
  const names = [];
  const source = pattern.replace(/\/:(\w+)(\?)?/g, (_, name, optional) => {
    names.push(name);
    return optional ? "(?:/([^/]+))?" : "/([^/]+)";
  });
  routes.push({ pattern, names, expression: new RegExp(`^${source}/?$`), load });
}

export const here = () => placeOf(location.pathname, location.search);

/**
 * @param {string} pathname
 * @param {string} search
 * @returns {Place}
 */
export function placeOf(pathname, search) {
  const query = Object.fromEntries(new URLSearchParams(search));
  for (const { pattern, names, expression, load } of routes) {
    const match = expression.exec(pathname);
    if (!match) continue;
    const params = Object.fromEntries(
      names.flatMap((name, at) => (match[at + 1] ? [[name, decoded(match[at + 1])]] : [])),
    );
    return { pattern, params, query, load };
  }
  return { pattern: null, params: {}, query, load: () => import("./pages/lost.js") };
}

/**
 * @param {string} url
 * @param {{ replace?: boolean }} [how]
 */
export function go(url, { replace = false } = {}) {
  const stays = url === location.pathname + location.search;
  history[replace || stays ? "replaceState" : "pushState"](null, "", url);
  arrived();
}

/**
 * Changes parts of the query; empty values are left out. Typing and dragging replace, choices push.
 * @param {Record<string, Ui.Value>} changes
 * @param {{ replace?: boolean }} [how]
 */
export function setQuery(changes, { replace = false } = {}) {
  const text = changedQuery(location.search, changes);
  go(location.pathname + (text ? `?${text}` : ""), { replace });
}

/**
 * @param {string} search
 * @param {Record<string, Ui.Value>} changes
 */
export function changedQuery(search, changes) {
  const query = new URLSearchParams(search);
  for (const [key, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "" || value === false) query.delete(key);
    else query.set(key, value === true ? "1" : String(value));
  }
  return query.toString();
}

/** @param {() => unknown} onArrival */
export function start(onArrival) {
  arrived = onArrival;
  addEventListener("popstate", arrived);
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    const plain = event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey);
    if (
      !link?.hasAttribute("href") ||
      !plain ||
      event.defaultPrevented ||
      link.target ||
      link.hasAttribute("download")
    )
      return;
    const url = new URL(link.href);
    if (
      url.origin !== location.origin ||
      url.pathname.startsWith("/api/") ||
      link.getAttribute("href")?.startsWith("#")
    )
      return;
    event.preventDefault();
    go(url.pathname + url.search);
  });
  arrived();
}
