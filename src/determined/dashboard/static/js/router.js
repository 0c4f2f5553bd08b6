// Which page the address names. All state of a view lives in the query string, so that an address
// is all one needs to send to a colleague, and Back undoes the last step.

import { decoded } from "./format.js";

const routes = [];
let arrived = () => {};

// route("/trials/:id/:tab?", () => import("./pages/trial.js"))
export function route(pattern, load) {
  const names = [];
  const source = pattern.replace(/\/:(\w+)(\?)?/g, (_, name, optional) => {
    names.push(name);
    return optional ? "(?:/([^/]+))?" : "/([^/]+)";
  });
  routes.push({ pattern, names, expression: new RegExp(`^${source}/?$`), load });
}

export function here() {
  const query = Object.fromEntries(new URLSearchParams(location.search));
  for (const { pattern, names, expression, load } of routes) {
    const match = expression.exec(location.pathname);
    if (!match) continue;
    const params = Object.fromEntries(
      names.map((name, at) => [name, match[at + 1] && decoded(match[at + 1])]),
    );
    return { pattern, params, query, load };
  }
  return { pattern: null, params: {}, query, load: () => import("./pages/lost.js") };
}

export function go(url, { replace = false } = {}) {
  if (url === location.pathname + location.search) replace = true;
  history[replace ? "replaceState" : "pushState"](null, "", url);
  arrived();
}

// Changes parts of the query; empty values are left out. Typing and dragging replace, choices push.
export function setQuery(changes, { replace = false } = {}) {
  const query = new URLSearchParams(location.search);
  for (const [key, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "" || value === false) query.delete(key);
    else query.set(key, value === true ? "1" : value);
  }
  const text = query.toString();
  go(location.pathname + (text ? `?${text}` : ""), { replace });
}

export function start(onArrival) {
  arrived = onArrival;
  addEventListener("popstate", arrived);
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href]");
    const plain = event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey);
    if (!link || !plain || event.defaultPrevented || link.target || link.hasAttribute("download")) return;
    const url = new URL(link.href);
    if (
      url.origin !== location.origin ||
      url.pathname.startsWith("/api/") ||
      link.getAttribute("href").startsWith("#")
    )
      return;
    event.preventDefault();
    go(url.pathname + url.search);
  });
  arrived();
}
