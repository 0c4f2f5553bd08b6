// The code as it was when the experiment was created.

import { get, path } from "../../api.js";
import { h } from "../../dom.js";
import { bytes, count } from "../../format.js";
import { Page } from "../../page.js";
import { codeView } from "../../widgets/diff.js";
import { card, empty, problem, skeleton } from "../../widgets/parts.js";

/**
 * @import { ExperimentPage } from "../experiment.js"
 * @import { Place } from "../../router.js"
 */

class Code extends Page {
  /**
   * @param {Place} place
   * @param {ExperimentPage} owner
   */
  constructor(place, owner) {
    super(place);
    this.owner = owner;
    /** @type {Api.FileJson[] | null} */
    this.files = null;
    /** @type {Api.FileContent | null} */
    this.file = null;
  }

  get chosen() {
    return (
      this.query.file ?? this.files?.find((one) => one.path.endsWith(".py"))?.path ?? this.files?.[0]?.path
    );
  }

  load() {
    return this.ask(async () => {
      this.files ??= (await get(path("experiments", this.owner.id, "code"), {}, this.signal)).files;
      if (this.chosen && this.file?.path !== this.chosen) {
        this.file = await get(
          path("experiments", this.owner.id, "code", "file"),
          { path: this.chosen },
          this.signal,
        );
      }
    });
  }

  view() {
    if (this.error) return problem(this.error, () => this.load());
    if (!this.files) return skeleton(10);
    if (!this.files.length) return empty("No code is stored with this experiment.");
    return card(
      "Code",
      [
        h("span.muted", count(this.files.length, "file")),
        h(
          "a.button.quiet",
          { href: path("experiments", this.owner.id, "code", "download"), download: "" },
          "Download",
        ),
      ],
      h(
        "div.browser",
        h(
          "nav",
          { "aria-label": "Files" },
          this.files.map((one) =>
            h(
              "a",
              {
                key: one.path,
                href: `/experiments/${this.owner.id}/code?file=${encodeURIComponent(one.path)}`,
                "aria-current": one.path === this.chosen ? "true" : null,
                title: one.path,
              },
              h("span.cut", one.path),
              h("small.nowrap", bytes(one.size)),
            ),
          ),
        ),
        h("div", this.#text()),
      ),
    );
  }

  #text() {
    if (!this.file || this.file.path !== this.chosen) return skeleton(8);
    if (this.file.binary || this.file.text === null)
      return empty("This file is not text.", "Download the code to look at it.");
    return [
      codeView(this.file.text, this.file.path),
      this.file.truncated
        ? h("div.note", "Only the beginning is shown: download the code to see all of it.")
        : null,
    ];
  }
}

/**
 * @param {Place} place
 * @param {ExperimentPage} owner
 */
export const open = (place, owner) => new Code(place, owner).begin();
