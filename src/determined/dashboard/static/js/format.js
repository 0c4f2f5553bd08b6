// Values as people read them. Pure.

/**
 * @param {unknown} it
 * @param {number} [digits]
 * @returns {string}
 */
export function number(it, digits = 4) {
  if (it === null || it === undefined || it === "") return "–";
  if (typeof it === "string") return it === "Infinity" ? "∞" : it === "-Infinity" ? "−∞" : it;
  if (typeof it === "boolean") return String(it);
  if (typeof it !== "number") return JSON.stringify(it);
  if (Number.isNaN(it)) return "NaN";
  if (!Number.isFinite(it)) return it > 0 ? "∞" : "−∞";
  if (it === 0) return "0";
  const size = Math.abs(it);
  if (Number.isInteger(it) && size < 1e7) return minus(it.toLocaleString("en-US"));
  if (size < 1e-3 || size >= 1e6)
    return minus(
      Number(it.toPrecision(digits - 1))
        .toExponential()
        .replace("e+", "e"),
    );
  return minus(String(Number(it.toPrecision(digits))));
}

/** @param {string} text */
const minus = (text) => text.replace("-", "−").replace("e-", "e−");

/**
 * A hyperparameter, a list or a nested value in one line.
 * @param {unknown} it
 */
export function value(it) {
  if (typeof it === "number" || it === null || it === undefined) return number(it);
  return typeof it === "string" ? it : JSON.stringify(it);
}

/**
 * @param {number | null | undefined} n
 * @param {string} one
 * @param {string} [many]
 */
export function count(n, one, many = `${one}s`) {
  return `${(n ?? 0).toLocaleString("en-US")} ${n === 1 ? one : many}`;
}

/**
 * Bookkeeping that is reported like a metric: how far it was, not how good.
 * @param {{ name: string | undefined }} metric
 */
export const isCounter = ({ name }) => name === "batches" || name === "epochs";

/**
 * @template {{ name: string }} Metric
 * @param {readonly Metric[]} metrics
 */
export const measuredFirst = (metrics) => [
  ...metrics.filter((one) => !isCounter(one)),
  ...metrics.filter(isCounter),
];

/**
 * What trials are judged by comes before what only accompanies it.
 * @template {{ group: string, name: string }} Metric
 * @param {readonly Metric[]} metrics
 * @param {readonly (string | null)[]} searched
 */
export const searchedFirst = (metrics, searched) => {
  const isSearched = (/** @type {Metric} */ { group, name }) =>
    group === "validation" && searched.includes(name);
  return [...metrics.filter(isSearched), ...metrics.filter((one) => !isSearched(one))];
};

/**
 * A metric's name with its group, unless the name says it already.
 * @param {{ group: string, name: string }} metric
 */
export const metricTitle = ({ group, name }) => (name.startsWith(group) ? name : `${group} ${name}`);

/**
 * What a search is after, in two words.
 * @param {Pick<Api.SearcherName, "metric" | "smaller_is_better">} searcher
 */
export const goal = ({ metric, smaller_is_better: smaller }) =>
  metric ? `${smaller ? "minimize" : "maximize"} ${metric}` : "";

/** @param {Api.Number | null | undefined} it */
export function percent(it) {
  const share = real(it);
  if (share === null) return "–";
  const whole = Math.floor(share * 100 + 1e-9);
  return `${share > 0 && whole === 0 ? "<1" : whole}%`;
}

/** @param {number | null | undefined} size */
export function bytes(size) {
  if (size === null || size === undefined) return "–";
  let n = size;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (n >= 1000 && at < units.length - 1) {
    n /= 1000;
    at += 1;
  }
  return `${at && n < 10 ? n.toFixed(1) : Math.round(n)} ${units[at]}`;
}

/** @param {Api.Number | null | undefined} it */
export function duration(it) {
  const seconds = real(it);
  if (seconds === null) return "–";
  if (seconds < 1) return seconds > 0 ? "<1 s" : "0 s";
  const whole = Math.round(seconds);
  const [days, hours] = [Math.floor(whole / 86400), Math.floor((whole % 86400) / 3600)];
  const [minutes, rest] = [Math.floor((whole % 3600) / 60), whole % 60];
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  return minutes ? `${minutes} min ${rest} s` : `${rest} s`;
}

/**
 * @param {Api.Number | null | undefined} it
 * @param {number} [now]
 */
export function ago(it, now = Date.now() / 1000) {
  const time = real(it);
  if (time === null) return "–";
  const seconds = Math.max(0, now - time);
  if (seconds < 45) return "just now";
  if (seconds < 3600) return `${Math.max(1, Math.round(seconds / 60))} min ago`;
  if (seconds < 86400) return `${Math.round(seconds / 3600)} h ago`;
  if (seconds < 7 * 86400) return `${count(Math.round(seconds / 86400), "day")} ago`;
  return date(time);
}

/** @param {number} n */
const two = (n) => String(n).padStart(2, "0");

/** @param {number} time */
export function date(time) {
  const at = new Date(time * 1000);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

/** @param {number} time */
export function clock(time) {
  const at = new Date(time * 1000);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** @param {Api.Number | null | undefined} it */
export function moment(it) {
  const time = real(it);
  return time === null ? "–" : `${date(time)} ${clock(time)}`;
}

/**
 * The numbers of the API: NaN and infinities come as strings.
 * @param {unknown} it
 * @returns {number | null}
 */
export function real(it) {
  if (typeof it === "number") return it;
  if (it === "NaN" || it === "Infinity" || it === "-Infinity") return Number(it);
  return null;
}

/**
 * A number that has a place on an axis.
 * @param {unknown} it
 */
export function finite(it) {
  return typeof it === "number" && Number.isFinite(it) ? it : null;
}

/**
 * The one that changed last comes first.
 * @param {{ updated: Api.Number }} a
 * @param {{ updated: Api.Number }} b
 */
export const byLatest = (a, b) => Number(b.updated) - Number(a.updated);

/**
 * A part of an address, as it is when it cannot be read.
 * @param {string} text
 */
export function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** @param {readonly (readonly unknown[])[]} rows */
export function csv(rows) {
  /** @param {unknown} it */
  const cell = (it) => {
    let text =
      it === null || it === undefined ? "" : typeof it === "object" ? JSON.stringify(it) : String(it);
    if (/^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text))) text = `'${text}`; // no formulas in spreadsheets
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}
