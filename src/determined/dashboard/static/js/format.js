// Values as people read them. Pure.

export function number(it, digits = 4) {
  if (it === null || it === undefined || it === "") return "–";
  if (typeof it === "string") return it === "Infinity" ? "∞" : it === "-Infinity" ? "−∞" : it;
  if (typeof it === "boolean") return String(it);
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

const minus = (text) => text.replace("-", "−").replace("e-", "e−");

// A hyperparameter, a list or a nested value in one line.
export function value(it) {
  if (typeof it === "number" || it === null || it === undefined) return number(it);
  return typeof it === "string" ? it : JSON.stringify(it);
}

export function count(n, one, many = `${one}s`) {
  return `${(n ?? 0).toLocaleString("en-US")} ${n === 1 ? one : many}`;
}

// Bookkeeping that is reported like a metric: how far it was, not how good.
export const isCounter = ({ name }) => name === "batches" || name === "epochs";

export const measuredFirst = (metrics) => [
  ...metrics.filter((one) => !isCounter(one)),
  ...metrics.filter(isCounter),
];

// A metric's name with its group, unless the name says it already.
export const metricTitle = ({ group, name }) => (name.startsWith(group) ? name : `${group} ${name}`);

export function percent(share) {
  if (share === null || share === undefined) return "–";
  const whole = Math.floor(share * 100 + 1e-9);
  return `${share > 0 && whole === 0 ? "<1" : whole}%`;
}

export function bytes(n) {
  if (n === null || n === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (n >= 1000 && at < units.length - 1) {
    n /= 1000;
    at += 1;
  }
  return `${at && n < 10 ? n.toFixed(1) : Math.round(n)} ${units[at]}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return seconds > 0 ? "<1 s" : "0 s";
  const whole = Math.round(seconds);
  const [days, hours] = [Math.floor(whole / 86400), Math.floor((whole % 86400) / 3600)];
  const [minutes, rest] = [Math.floor((whole % 3600) / 60), whole % 60];
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  return minutes ? `${minutes} min ${rest} s` : `${rest} s`;
}

export function ago(time, now = Date.now() / 1000) {
  if (time === null || time === undefined) return "–";
  const seconds = Math.max(0, now - time);
  if (seconds < 45) return "just now";
  if (seconds < 3600) return `${Math.max(1, Math.round(seconds / 60))} min ago`;
  if (seconds < 86400) return `${Math.round(seconds / 3600)} h ago`;
  if (seconds < 7 * 86400) return count(Math.round(seconds / 86400), "day") + " ago";
  return date(time);
}

const two = (n) => String(n).padStart(2, "0");

export function date(time) {
  const at = new Date(time * 1000);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

export function clock(time) {
  const at = new Date(time * 1000);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

export function moment(time) {
  return time === null || time === undefined ? "–" : `${date(time)} ${clock(time)}`;
}

// The numbers of the API: NaN and infinities come as strings.
export function real(it) {
  if (typeof it === "number") return it;
  if (it === "NaN" || it === "Infinity" || it === "-Infinity") return Number(it);
  return null;
}

// A part of an address, as it is when it cannot be read.
export function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function csv(rows) {
  const cell = (it) => {
    let text =
      it === null || it === undefined ? "" : typeof it === "object" ? JSON.stringify(it) : String(it);
    if (/^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text))) text = `'${text}`; // no formulas in spreadsheets
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}
