// What if, from batch K: the dialog that forks a trial, and where forks come from.

import { get, path, send } from "../api.js";
import { h } from "../dom.js";
import { go } from "../router.js";
import { dialog, textField } from "./dialog.js";
import { card } from "./parts.js";
import { toast, wordsOf } from "./toast.js";

export async function forkTrial(trial) {
  const said = h("p.muted", { role: "status" }, "Both share the batches up to there.");
  const tell = async (event) => {
    const at = Number(event.target.value);
    if (!Number.isInteger(at) || at < 1) return;
    try {
      said.textContent = (await get(path("trials", trial.id, "fork"), { at })).text;
    } catch (error) {
      said.textContent = wordsOf(error);
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
        onchange: tell,
      }),
      said,
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

// -> the values that differ, by name
function changes(entries, answer) {
  const found = {};
  for (const [name, it] of entries) {
    const text = answer[`hparam:${name}`];
    if (text !== undefined && text !== JSON.stringify(it)) found[name] = parsed(text);
  }
  return found;
}

// Text without quotes is what it says.
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

const flat = (hparams, before = "") =>
  Object.entries(hparams).flatMap(([name, it]) =>
    it !== null && typeof it === "object" && !Array.isArray(it)
      ? flat(it, `${before}${name}.`)
      : [[`${before}${name}`, it]],
  );

export function lineageCard({ lineage }) {
  const relatives = [lineage?.parent, ...(lineage?.forks ?? [])].filter(Boolean);
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
