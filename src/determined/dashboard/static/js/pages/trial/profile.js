// Where the time went.

import { get, path } from "../../api.js";
import { h } from "../../dom.js";
import { duration, number, percent } from "../../format.js";
import { Page } from "../../page.js";
import { card, empty, problem, progressBar, skeleton } from "../../widgets/parts.js";

/**
 * @import { TrialPage } from "../trial.js"
 * @import { Place } from "../../router.js"
 */

class Profile extends Page {
  /**
   * @param {Place} place
   * @param {TrialPage} owner
   */
  constructor(place, owner) {
    super(place);
    this.owner = owner;
    /** @type {Api.ProfileJson | null} */
    this.found = null;
  }

  load() {
    return this.ask(async () => {
      this.found = await get(path("trials", this.owner.id, "profile"), {}, this.signal);
    });
  }

  view() {
    if (this.error) return problem(this.error, () => this.load());
    if (!this.found) return skeleton(8);
    const { rows, note } = this.found;
    if (!rows.length) return empty("No profile of this trial.", note);
    return card(
      "Where the time went",
      note ? h("span.muted", note) : null,
      h(
        "div.inside.importance.timed",
        rows.map((row) => [
          h("span.cut", { title: row.what }, row.what),
          progressBar(row.share, "ACTIVE", row.what),
          h(
            "span.number.nowrap",
            { title: `${number(row.seconds, 6)} s` },
            Number(row.seconds) < 60 ? `${number(row.seconds, 3)} s` : duration(row.seconds),
            ` · ${percent(row.share)}`,
          ),
        ]),
      ),
    );
  }
}

/**
 * @param {Place} place
 * @param {TrialPage} owner
 */
export const open = (place, owner) => new Profile(place, owner).begin();
