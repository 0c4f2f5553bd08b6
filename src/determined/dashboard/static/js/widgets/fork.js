// What if, from batch K: the dialog that forks a trial, and where forks come from.

import { get, path, send } from "../api.js";
import { h } from "../dom.js";
import { go } from "../router.js";
import { dialog, textField } from "./dialog.js";
import { card } from "./parts.js";
import { toast, wordsOf } from "./toast.js";

/** @typedef {[name: string, value: Api.Json]} Entry */

/** @param {Api.TrialDetail} trial */
export async function forkTrial(trial) {
  const start = h("p.muted", { role: "status" }, "Both share the batches up to there.");
  /** @param {{ currentTarget: HTMLInputElement }} event */
  const showStart = async (event) => {
    const at = Number(event.currentTarget.value);
    if (!Number.isInteger(at) || at < 1) return;
    try {
      start.textContent = (await get(path("trials", trial.id, "fork"), { at })).text;
    } catch (error) {
      start.textContent = wordsOf(error);
    }
  };
  const entries = flat(trial.hparams ?? {});
  const answer = await dialog(
    `Fork trial ${trial.id}`,
    [
      textField("at", "At batch", {
        type: "number",
        min: 1,
        max: trial.steps,
        value: trial.steps,
        required: true,
        onchange: showStart,
      }),
      start,
      entries.map(([name, it]) => textField(`hparam:${name}`, name, { value: JSON.stringify(it) })),
      textField("name", "Name of the new experiment", { maxlength: 128, autocomplete: "off" }),
    ],
    { ok: "Fork" },
  );
  if (!answer) return;
  try {
    const hparams = changes(entries, answer);
    const body = { at: Number(answer.at), hparams, name: answer.name };
    const { experiment_id: id } = await send("POST", path("trials", trial.id, "fork"), body);
    toast(`Created experiment ${id}.`, "good");
    go(`/experiments/${id}`);
  } catch (error) {
    toast(wordsOf(error), "bad");
  }
}

/**
 * -> the values that differ, by name
 * @param {Entry[]} entries
 * @param {Record<string, string>} answer
 */
function changes(entries, answer) {
  /** @type {Record<string, Api.Json>} */
  const found = {};
  for (const [name, it] of entries) {
    const text = answer[`hparam:${name}`];
    if (text !== undefined && text !== JSON.stringify(it)) found[name] = parsed(text);
  }
  return found;
}

/**
 * Text without quotes is what it says.
 * @param {string} text
 * @returns {Api.Json}
 */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/**
 * @param {Record<string, Api.Json>} hparams
 * @returns {Entry[]}
 */
const flat = (hparams, before = "") =>
  Object.entries(hparams).flatMap(([name, it]) =>
    it !== null && typeof it === "object" && !Array.isArray(it)
      ? flat(it, `${before}${name}.`)
      : [[`${before}${name}`, it]],
  );

/** @param {Api.TrialDetail} trial */
export function lineageCard({ lineage }) {
  const relatives = [lineage?.parent, ...(lineage?.forks ?? [])].filter((one) => one != null);
  if (!relatives.length) return null;
  return card(
    "Lineage",
    null,
    h(
      "div.inside",
      relatives.map((one) => h("div", h("a", { href: `/trials/${one.trial_id}` }, one.text))),
    ),
  );
}
