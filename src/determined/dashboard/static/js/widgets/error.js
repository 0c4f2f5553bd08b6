// What a trial failed with.

import { h } from "../dom.js";
import { card } from "./parts.js";

/**
 * @param {string} title
 * @param {Api.ErrorJson} error
 * @param {Ui.Child} [trial] a link to the trial, where another page shows its error
 */
export const errorCard = (title, { trial_id: id, line, text }, trial = null) =>
  card(
    title,
    [trial, line ? h("a", { href: `/trials/${id}/logs?line=${line}` }, `Line ${line} of the log`) : null],
    h(
      "div.inside.stack",
      h("strong.danger-text.error-words", text.trimEnd().split("\n").at(-1)),
      h("pre.traceback", { tabindex: 0, "aria-label": "Traceback" }, text),
    ),
  );
