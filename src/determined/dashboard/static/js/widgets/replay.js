// Look again: the command that trains the batches in view once more.

import { h } from "../dom.js";
import { dialog } from "./dialog.js";
import { copyable } from "./parts.js";

/**
 * -> the command for the part of a chart that is in view, all batches if none was chosen
 * @param {{ id: number, steps: number }} trial
 * @param {Record<string, string | undefined>} query of the address, with the zoom
 */
export function replayCommand({ id, steps }, { from, to, x }) {
  const isInBatches = (x || "steps") === "steps" && (from || to);
  const first = isInBatches ? Math.ceil(Number(from)) : 1;
  const last = isInBatches ? Math.floor(Number(to)) : steps;
  const within = (/** @type {number} */ it) => Math.min(Math.max(it, 1), Math.max(steps, 1));
  return `det trial replay ${id} --batches ${within(first)}:${Math.max(within(first), within(last))}`;
}

/**
 * @param {{ id: number, steps: number }} trial
 * @param {Record<string, string | undefined>} query
 */
export const showReplay = (trial, query) =>
  dialog(
    "Replay this span",
    [
      h("p", "Trains these batches again, exactly, in a terminal of the machine with this home:"),
      copyable(replayCommand(trial, query)),
      h("p.muted", "Add --with module:Callback to look at them. Drag in a chart to choose another span."),
    ],
    { ok: "Close", cancel: null },
  );
