// Trials in TensorBoard: the dashboard starts one beside itself, and says where it is.

import { send } from "../api.js";
import { h } from "../dom.js";
import { count } from "../format.js";
import { dialog } from "./dialog.js";
import { button, copyable, problem } from "./parts.js";
import { toast } from "./toast.js";

/** @typedef {{ experiments?: number[], trials?: number[] }} What */

/**
 * what: {experiments: [id]} or {trials: [id]}
 * @param {What} what
 */
export const tensorboardButton = (what) =>
  button("TensorBoard", () => openTensorBoard(what), {
    title: "Open in TensorBoard",
    picture: "external",
  });

/** @param {What} what */
async function openTensorBoard(what) {
  const said = toast("Starting TensorBoard …", "busy");
  const command = h("div", h("div.muted", "Or start it in a terminal"), copyable(commandOf(what)));
  let told;
  try {
    told = opened(await send("POST", "/api/tensorboard", what));
  } catch (error) {
    told = problem(/** @type {Error} */ (error));
  }
  said.close();
  dialog("TensorBoard", [told, command], { ok: "Close", cancel: null });
}

/** @param {Api.TensorBoardJson} answer */
function opened({ url, shown, trials }) {
  return h(
    "div.stack",
    h(
      "p",
      shown < trials
        ? `It shows the ${shown} best of ${count(trials, "trial")}.`
        : `It shows ${count(trials, "trial")}; new points of running trials appear live.`,
    ),
    h(
      "a.button.main",
      { href: url, target: "_blank", rel: "noopener noreferrer" },
      `Open ${new URL(url).host}`,
    ),
    h(
      "p.muted",
      "It runs on the dashboard's machine and stops with it. From another machine, forward its port as you did for the dashboard.",
    ),
  );
}

/** @param {What} what */
const commandOf = ({ experiments = [], trials = [] }) =>
  ["det tensorboard start", ...experiments, trials.length ? `-t ${trials.join(",")}` : ""]
    .filter((it) => it !== "")
    .join(" ");
