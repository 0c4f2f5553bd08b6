// The filters of a log. Their state is in the address.

import { h } from "../dom.js";
import { setQuery } from "../router.js";
import { button, select } from "./parts.js";

const LEVELS = [
  { value: "", text: "All levels" },
  { value: "WARNING,ERROR,CRITICAL", text: "Warnings and errors" },
  { value: "ERROR,CRITICAL", text: "Errors" },
  { value: "INFO", text: "Info" },
  { value: "DEBUG", text: "Debug" },
];

/**
 * @param {Ui.Query} query
 * @param {{ hasRegex: boolean }} how
 */
export function logFilters(query, { hasRegex }) {
  let typing = 0;
  /**
   * @param {"since" | "until"} name
   * @param {string} label
   */
  const time = (name, label) =>
    h(
      "label.labelled",
      label,
      h("input.field", {
        type: "datetime-local",
        step: 1,
        "aria-label": label,
        value: query[name] ? localTime(Number(query[name])) : "",
        onchange: (event) =>
          setQuery({ [name]: event.currentTarget.value ? Date.parse(event.currentTarget.value) / 1000 : "" }),
      }),
    );
  return [
    h("input.field.search", {
      type: "search",
      placeholder: "Search the log",
      "aria-label": "Search the log",
      value: query.search ?? "",
      oninput: (event) => {
        const search = event.currentTarget.value;
        clearTimeout(typing);
        typing = setTimeout(() => setQuery({ search, line: "" }, { replace: true }), 250);
      },
    }),
    hasRegex
      ? button(".*", () => setQuery({ regex: query.regex !== "1" }), {
          pressed: query.regex === "1",
          title: "Search with a regular expression",
        })
      : null,
    select("Level", LEVELS, query.level ?? "", (level) => setQuery({ level }), { hideLabel: true }),
    h(
      "label.labelled",
      "Rank",
      h("input.field.tiny", {
        type: "number",
        min: 0,
        "aria-label": "Rank",
        value: query.rank ?? "",
        onchange: (event) => setQuery({ rank: event.currentTarget.value }),
      }),
    ),
    query.since || query.until || query.times
      ? [time("since", "From"), time("until", "To")]
      : button("Time", () => setQuery({ times: "1" }, { replace: true })),
  ];
}

/** @param {Ui.Query} query */
export const filterParams = ({ search, level, rank, since, until }) => ({
  search,
  level,
  rank,
  since,
  until,
});

/** @param {number} seconds */
function localTime(seconds) {
  const at = new Date(seconds * 1000);
  return new Date(at.getTime() - at.getTimezoneOffset() * 60000).toISOString().slice(0, 19);
}
