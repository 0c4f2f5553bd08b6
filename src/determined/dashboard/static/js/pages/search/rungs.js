// The rungs of a search: who got where, who was stopped and why.

import { get, path } from "../../api.js";
import { h } from "../../dom.js";
import { clock, count, number, real } from "../../format.js";
import { Page } from "../../page.js";
import { card, empty, problem, skeleton } from "../../widgets/parts.js";

const MOST_MARKS = 120;

class Rungs extends Page {
  constructor(place, owner) {
    super(place);
    this.owner = owner;
  }

  load() {
    return this.ask(async () => {
      this.found = await get(path("experiments", this.owner.id, "rungs"), {}, this.signal);
    });
  }

  changed({ experiments }) {
    if (experiments?.includes(this.owner.id)) this.soon(() => this.load(), 1500);
  }

  view() {
    if (this.error) return problem(this.error, () => this.load());
    if (!this.found) return skeleton(8);
    const { method, brackets, steps } = this.found;
    if (!brackets.length && !steps?.length) return empty("This search has no rungs.", `${method ?? "It"} trains every trial to its end.`);
    return [brackets.map((bracket) => this.#bracket(bracket, brackets.length)), brackets.map((bracket) => this.#table(bracket, brackets.length)), this.#steps(steps)];
  }

  #bracket({ number: at, rungs }, brackets) {
    const title = brackets > 1 ? `Bracket ${at}` : "Rungs";
    return card(title, h("span.chips.muted", {}, ["promoted", "stopped", "waiting", "completed"].map((one) => h("span.mark", { "data-outcome": one }, one))),
      h("div.rungs", {}, rungs.map((rung) => h("div.rung", {},
        h("div", {}, h("strong", {}, number(rung.units)), h("span.muted", {}, ` ${rung.seen} seen, ${rung.kept} kept`)),
        h("div.who", {}, rung.rows.slice(0, MOST_MARKS).map((row) => h("a.mark", { href: `/trials/${row.trial_id}`, "data-outcome": row.outcome, title: row.sentence }, row.trial_id)),
          rung.rows.length > MOST_MARKS ? h("span.muted", {}, `and ${rung.rows.length - MOST_MARKS} more`) : null)))));
  }

  #table({ number: at, rungs }, brackets) {
    return card(brackets > 1 ? `Decisions of bracket ${at}` : "Decisions", null, h("div.scroll-x", {}, h("table.plain", {},
      h("thead", {}, h("tr", {}, ["Rung", "Rank", "Trial", "Metric", "Outcome", "Why"].map((text, i) => h([0, 1, 2, 3].includes(i) ? "th.number" : "th", { scope: "col" }, text)))),
      h("tbody", {}, rungs.flatMap((rung) => rung.rows.slice(0, 200).map((row) => h("tr", {},
        h("td.number", {}, number(rung.units)), h("td.number", {}, row.rank), h("td.number", {}, h("a", { href: `/trials/${row.trial_id}` }, row.trial_id)),
        h("td.number", {}, number(real(row.metric))), h("td", {}, row.outcome), h("td", { title: row.sentence }, row.sentence))))))));
  }

  #steps(steps) {
    if (!steps?.length) return null;
    return card("Step by step", h("span.muted", {}, count(steps.length, "step")), h("ul.events.inside", {}, steps.slice(-200).reverse().map((one) =>
      h("li", {}, h("time", {}, one.time ? clock(one.time) : one.number), h("span", {}, one.sentence)))));
  }
}

export const open = (place, owner) => new Rungs(place, owner).begin();
