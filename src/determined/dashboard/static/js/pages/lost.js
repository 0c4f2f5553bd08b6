// An address without a page.

import { h } from "../dom.js";
import { Page } from "../page.js";
import { empty } from "../widgets/parts.js";

/** @import { Place } from "../router.js" */

class Lost extends Page {
  get title() {
    return "Not found";
  }

  view() {
    return empty("There is nothing at this address.", h("a", { href: "/" }, "All experiments"));
  }
}

/** @param {Place} place */
export const open = (place) => new Lost(place).begin();
