// The configuration, and what differs from another experiment's.

import { get, path } from "../../api.js";
import { h, textIn } from "../../dom.js";
import { Page } from "../../page.js";
import { setQuery } from "../../router.js";
import { codeView, diffView } from "../../widgets/diff.js";
import { button, card, copy, empty, problem, skeleton } from "../../widgets/parts.js";

/**
 * @import { ExperimentPage } from "../experiment.js"
 * @import { Place } from "../../router.js"
 */

class Config extends Page {
  /**
   * @param {Place} place
   * @param {ExperimentPage} owner
   */
  constructor(place, owner) {
    super(place);
    this.owner = owner;
    /** @type {Api.DiffJson | null} */
    this.diff = null;
  }

  load() {
    return this.ask(async () => {
      this.diff = this.query.other
        ? await get(path("experiments", this.owner.id, "diff"), { other: this.query.other }, this.signal)
        : null;
    });
  }

  view() {
    const { config_yaml: text, id } = this.owner.experiment;
    const compare = h(
      "form.bar",
      {
        onsubmit: (event) => {
          event.preventDefault();
          setQuery({ other: textIn(event.currentTarget, "other") });
        },
      },
      h(
        "label.labelled",
        "Compare with experiment",
        h("input.field", {
          name: "other",
          inputmode: "numeric",
          size: 6,
          value: this.query.other ?? "",
          placeholder: "ID",
        }),
      ),
      h("button.button", { type: "submit" }, "Show"),
      this.query.other ? button("Close", () => setQuery({ other: "" }), { kind: "quiet" }) : null,
    );
    return [
      compare,
      this.error ? problem(this.error) : null,
      this.query.other && !this.error ? (this.diff ? this.#diff(this.diff) : skeleton(8)) : null,
      card(
        `Configuration of experiment ${id}`,
        button("", () => copy(text), { kind: "quiet", title: "Copy the configuration", picture: "copy" }),
        codeView(text, "Configuration"),
      ),
    ];
  }

  /** @param {Api.DiffJson} diff */
  #diff({ config, code }) {
    const other = this.query.other;
    if (!config && !code.length)
      return empty(`Experiment ${other} has the same configuration and the same code.`);
    return [
      config
        ? card(`Configuration: ${this.owner.id} → ${other}`, null, diffView(config, "Configuration diff"))
        : h("div.muted", "The configurations are the same."),
      code.length
        ? code.map((one) => card(one.path, null, diffView(one.diff, `Diff of ${one.path}`)))
        : h("div.muted", "The code is the same."),
    ];
  }
}

/**
 * @param {Place} place
 * @param {ExperimentPage} owner
 */
export const open = (place, owner) => new Config(place, owner).begin();
