// Images, texts and histograms that the trial wrote to its event files, with a slider over the steps.

import { get, path, query } from "../../api.js";
import { h } from "../../dom.js";
import { count, number } from "../../format.js";
import { Page } from "../../page.js";
import { button, card, empty, problem, skeleton } from "../../widgets/parts.js";

/**
 * @import { TrialPage } from "../trial.js"
 * @import { Place } from "../../router.js"
 * @import { Change } from "../../live.js"
 */

const TITLES = { image: "Images", text: "Texts", histogram: "Histograms" };
const AT_ONCE = 24;
const [WIDTH, HEIGHT] = [300, 120];

/** One tag: where its slider is, and what is there. */
class Shown {
  /** @param {Api.MediaTagJson} tag */
  constructor(tag) {
    this.tag = tag;
    /** @type {number | null} the step that was chosen; null: always the last one */
    this.chosen = null;
    /** @type {number | null} the step that was asked for */
    this.asked = null;
    /** @type {Api.MediaValueJson | null} */
    this.value = null;
  }

  get place() {
    const found = this.chosen === null ? -1 : this.tag.steps.indexOf(this.chosen);
    return found < 0 ? this.tag.steps.length - 1 : found;
  }

  get step() {
    return this.tag.steps[this.place];
  }
}

class Media extends Page {
  /**
   * @param {Place} place
   * @param {TrialPage} owner
   */
  constructor(place, owner) {
    super(place);
    this.owner = owner;
    /** @type {Api.MediaJson | null} */
    this.found = null;
    /** @type {Map<string, Shown>} */
    this.shown = new Map();
    this.most = AT_ONCE;
  }

  load() {
    return this.ask(async () => {
      this.found = await get(path("trials", this.owner.id, "media"), {}, this.signal);
      for (const tag of this.found.tags) {
        const key = `${tag.kind} ${tag.folder} ${tag.tag}`;
        const known = this.shown.get(key);
        if (known) known.tag = tag;
        else this.shown.set(key, new Shown(tag));
      }
      this.#fetchAll();
      if (!this.found.complete) this.soon(() => this.load(), 100);
    });
  }

  /** @param {Change} change */
  changed({ trials }) {
    if (trials?.includes(this.owner.id)) this.soon(() => this.load(), 5000);
  }

  #fetchAll() {
    for (const one of [...this.shown.values()].slice(0, this.most)) this.#fetch(one);
  }

  /** @param {Shown} one */
  #fetch(one) {
    const { step, tag } = one;
    if (one.asked === step) return;
    one.asked = step;
    this.ask(async () => {
      const { kind, folder, tag: name } = tag;
      const address = path("trials", this.owner.id, "media", "value");
      const value = await get(address, { kind, folder, tag: name, step }, this.signal);
      if (one.asked === step) one.value = value; // unless the slider has moved on
    });
  }

  /**
   * @param {Shown} one
   * @param {number} place
   */
  #move(one, place) {
    one.chosen = place === one.tag.steps.length - 1 ? null : one.tag.steps[place];
    this.#fetch(one);
    this.draw();
  }

  view() {
    if (this.error) return problem(this.error, () => this.load());
    if (!this.found) return skeleton(8);
    if (!this.found.tags.length)
      return this.found.complete
        ? empty(
            "No images, texts or histograms.",
            "What a trial writes to TensorBoard is shown here:",
            h("code", "context.get_tensorboard_writer().add_image(...)"),
          )
        : skeleton(8);
    const all = [...this.shown.values()];
    const some = all.slice(0, this.most);
    return [
      this.found.note ? h("p.muted", this.found.note) : null,
      Object.entries(TITLES).map(([kind, title]) => {
        const fitting = some.filter((one) => one.tag.kind === kind);
        if (!fitting.length) return null;
        return card(
          title,
          null,
          h(
            "div.inside.media",
            fitting.map((one) => this.#figure(one)),
          ),
        );
      }),
      all.length > some.length
        ? button(`Show ${count(all.length - some.length, "more tag", "more tags")}`, () => {
            this.most += AT_ONCE;
            this.#fetchAll();
            this.draw();
          })
        : null,
    ];
  }

  /** @param {Shown} one */
  #figure(one) {
    const { tag, step, place, value } = one;
    const name = tag.folder ? `${tag.folder}: ${tag.tag}` : tag.tag;
    return h(
      "figure",
      { key: `${tag.kind} ${tag.folder} ${tag.tag}` },
      h("figcaption.cut", { title: name }, name),
      h(
        "label.steps",
        h("span.number", `step ${number(step)}`),
        h("input", {
          type: "range",
          min: "0",
          max: String(tag.steps.length - 1),
          value: String(place),
          disabled: tag.steps.length < 2,
          "aria-label": `Step of ${name}`,
          "aria-valuetext": `step ${step}`,
          oninput: (event) => this.#move(one, Number(event.currentTarget.value)),
        }),
      ),
      value ? this.#content(one, value) : skeleton(3),
    );
  }

  /**
   * @param {Shown} one
   * @param {Api.MediaValueJson} value
   */
  #content(one, value) {
    if (value.problem) return h("p.muted", value.problem);
    const { folder, tag } = one.tag;
    const address = path("trials", this.owner.id, "media", "image");
    return [
      value.images.map((image, index) =>
        image.problem
          ? h("p.muted", image.problem)
          : h("img", {
              key: `image ${index}`,
              src: `${address}?${query({ tag, folder, step: value.step, index })}`,
              width: image.width,
              height: image.height,
              loading: "lazy",
              alt: `${tag}, step ${value.step}`,
            }),
      ),
      value.texts.map((text) => h("pre", text)),
      value.histogram ? bars(value.histogram, tag) : null,
    ];
  }
}

/**
 * @param {Api.BucketsJson} histogram
 * @param {string} name
 */
function bars({ limits, counts }, name) {
  const [low, high] = [Number(limits[0]), Number(limits[limits.length - 1])];
  const span = high - low || 1;
  // A bar is as high as it is dense: buckets are not equally wide.
  const densities = counts.map((it, i) => {
    const width = Number(limits[i + 1]) - Number(limits[i]);
    return width > 0 ? Number(it) / width : high > low ? 0 : Number(it);
  });
  const top = Math.max(...densities) || 1;
  const total = counts.reduce((sum, it) => Number(sum) + Number(it), 0);
  return h(
    "div.histogram",
    h(
      "svg",
      {
        viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
        role: "img",
        "aria-label": `${name}: ${number(total)} values from ${number(low)} to ${number(high)}`,
      },
      densities.map((density, i) => {
        const left = ((Number(limits[i]) - low) / span) * WIDTH;
        const right = high > low ? ((Number(limits[i + 1]) - low) / span) * WIDTH : WIDTH;
        const height = (density / top) * HEIGHT;
        return h("rect", {
          x: left.toFixed(2),
          y: (HEIGHT - height).toFixed(2),
          width: Math.max(right - left, 0).toFixed(2),
          height: height.toFixed(2),
        });
      }),
    ),
    h("div.ends", h("span", number(low)), h("span", `${number(total)} values`), h("span", number(high))),
  );
}

/**
 * @param {Place} place
 * @param {TrialPage} owner
 */
export const open = (place, owner) => new Media(place, owner).begin();
