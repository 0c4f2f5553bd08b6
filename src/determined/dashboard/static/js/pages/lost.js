// An address without a page.

import { ApiError } from "../api.js";
import { h } from "../dom.js";
import { Page } from "../page.js";
import { empty, problem } from "../widgets/parts.js";

/** @import { Place } from "../router.js" */

class Lost extends Page {
  get title() {
    return "Not found";
  }

  view() {
    return [h("h1.hidden-text", "Not found"), lost("There is nothing at this address.", location.pathname)];
  }
}

/**
 * What was looked for is not there, and where to go instead.
 * @param {string} words
 * @param {string} [address]
 */
export const lost = (words, address) =>
  h(
    "div.lost",
    h("div.lost-number", { "aria-hidden": "true" }, "404"),
    empty(
      words,
      address ? h("code", address) : "It may have been deleted, or belong to another home.",
      h("span.bar", ...PLACES.map(([href, text]) => h("a.button", { href }, text))),
    ),
  );

/**
 * Why a page shows nothing: there is no such thing, or the question failed.
 * @param {Error} error
 * @param {() => unknown} retry
 */
export const notThere = (error, retry) =>
  error instanceof ApiError && error.status === 404 ? lost(error.message) : problem(error, retry);

const PLACES = [
  ["/", "All experiments"],
  ["/trials", "All trials"],
  ["/models", "Models"],
  ["/queue", "Queue"],
];

/** @param {Place} place */
export const open = (place) => new Lost(place).begin();
