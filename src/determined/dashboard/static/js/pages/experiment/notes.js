// Notes: plain text, saved when asked.

import { h } from "../../dom.js";
import { Page } from "../../page.js";
import { button, card } from "../../widgets/parts.js";

/**
 * @import { ExperimentPage } from "../experiment.js"
 * @import { Place } from "../../router.js"
 */

class Notes extends Page {
  /**
   * @param {Place} place
   * @param {ExperimentPage} owner
   */
  constructor(place, owner) {
    super(place);
    this.owner = owner;
    this.text = owner.experiment.notes;
  }

  /** @param {Place} place */
  moved(place) {
    this.place = place;
  }

  view() {
    const saved = this.owner.experiment.notes;
    return card(
      "Notes",
      button("Save", () => this.owner.change({ notes: this.text }), {
        kind: "main",
        disabled: this.text === saved,
      }),
      h(
        "div.inside",
        h("textarea.field.mono", {
          rows: 18,
          "aria-label": "Notes",
          placeholder: "What was this for, what did it show?",
          value: this.text,
          oninput: (event) => {
            this.text = event.currentTarget.value;
            this.draw();
          },
        }),
      ),
    );
  }
}

/**
 * @param {Place} place
 * @param {ExperimentPage} owner
 */
export const open = (place, owner) => new Notes(place, owner).begin();
