// What one can do to experiments, and the watch on what became of it: a click is not an effect.

import { get, hasVerb, path, send } from "./api.js";
import { h } from "./dom.js";
import { count } from "./format.js";
import { listen } from "./live.js";
import { confirm } from "./widgets/dialog.js";
import { button, isActive, isOver } from "./widgets/parts.js";
import { toast } from "./widgets/toast.js";

const VERBS = {
  pause: { text: "Pause", doing: "Pausing", fits: (row) => isActive(row.state) },
  activate: { text: "Activate", doing: "Activating", fits: (row) => row.state === "PAUSED" },
  cancel: {
    text: "Cancel",
    doing: "Canceling",
    fits: (row) => isActive(row.state) || row.state === "PAUSED",
    warn: "Each running trial saves a checkpoint and ends. A canceled experiment cannot be activated again.",
  },
  kill: {
    text: "Kill",
    doing: "Killing",
    danger: true,
    fits: (row) => !isOver(row.state) && row.state !== "DELETING",
    warn: "The processes end at once. What was not saved in a checkpoint is lost.",
  },
  archive: { text: "Archive", doing: "Archiving", fits: (row) => isOver(row.state) && !row.archived },
  unarchive: { text: "Unarchive", doing: "Unarchiving", fits: (row) => row.archived },
  delete: {
    text: "Delete",
    doing: "Deleting",
    danger: true,
    fits: (row) => isOver(row.state) || row.state === "DELETE_FAILED",
    warn: "Metrics, logs and checkpoints go with it. This cannot be undone.",
  },
};

export function verbButtons(rows, done = () => {}) {
  const managed = rows.filter((row) => !row.unmanaged);
  return Object.entries(VERBS)
    .filter(([name]) => hasVerb(name))
    .map(([name, verb]) => [
      name,
      verb,
      (["archive", "unarchive", "delete"].includes(name) ? rows : managed).filter(verb.fits),
    ])
    .filter(([, , fitting]) => fitting.length)
    .map(([name, verb, fitting]) =>
      button(rows.length > 1 ? `${verb.text} ${fitting.length}` : verb.text, () => act(name, fitting, done), {
        kind: verb.danger ? "danger" : "",
      }),
    );
}

const named = (rows) => (rows.length === 1 ? `experiment ${rows[0].id}` : count(rows.length, "experiment"));

export async function act(name, rows, done = () => {}) {
  const verb = VERBS[name];
  const fitting = rows.filter(verb.fits);
  if (!fitting.length) return;
  if (verb.warn && !(await confirm(`${verb.text} ${named(fitting)}?`, verb.warn, verb.text))) return;
  const said = toast(`${verb.doing} ${named(fitting)} …`);
  try {
    const refused = await ask(name, fitting);
    if (refused.length) said.say(refused.join(" "), "bad");
    else watch(name, fitting, said);
  } catch (error) {
    said.say([error.message, error.next].filter(Boolean).join(" "), "bad");
  }
  done();
}

async function ask(name, rows) {
  if (rows.length === 1) {
    await send("POST", path("experiments", rows[0].id, name));
    return [];
  }
  const { results } = await send("POST", "/api/experiments/verbs", {
    verb: name,
    ids: rows.map((row) => row.id),
  });
  return Object.values(results)
    .filter((one) => !one.ok)
    .map((one) => one.error);
}

const REACHED = {
  pause: (row, running) => row.state === "PAUSED" && !running,
  activate: (row) => isActive(row.state),
  cancel: (row) => isOver(row.state),
  kill: (row) => isOver(row.state),
};

// Waits for the effect: the state, and for a pause also that no process is left.
function watch(name, rows, said) {
  if (!REACHED[name]) {
    said.say(
      { archive: "Archived", unarchive: "Unarchived", delete: "Deleting" }[name] + ` ${named(rows)}.`,
      "good",
    );
    return;
  }
  const waiting = new Set(rows.map((row) => row.id));
  let busy = false;
  const look = async () => {
    if (busy) return;
    busy = true;
    try {
      const running = new Set((await get("/api/queue")).running.map((one) => one.experiment_id));
      for (const id of [...waiting]) {
        const row = await get(path("experiments", id));
        if (isOver(row.state) || REACHED[name](row, running.has(id))) {
          waiting.delete(id);
          said.say(await effect(row), "good");
        }
      }
    } catch {
      // the next change tries again
    }
    busy = false;
    if (!waiting.size) stop();
  };
  const stop = listen({ change: look, again: look });
  look();
}

export async function effect(row) {
  const words = {
    PAUSED: "Paused",
    ACTIVE: "Active",
    RUNNING: "Running",
    QUEUED: "Queued",
    CANCELED: "Canceled",
    COMPLETED: "Completed",
    ERROR: "Ended with an error",
  };
  const start = `${words[row.state] ?? row.state}: experiment ${row.id}`;
  if (row.state !== "PAUSED" && row.state !== "CANCELED") return `${start}.`;
  const { total, rows } = await get(path("experiments", row.id, "trials"), {
    sort: "steps",
    order: "desc",
    limit: 1,
  });
  if (!total || rows[0].steps === null) return `${start} before its first batch.`;
  return total === 1
    ? `${start} at batch ${rows[0].steps}.`
    : `${start}, ${count(total, "trial")}, the furthest at batch ${rows[0].steps}.`;
}

export async function killTrial(trial, done) {
  if (
    !(await confirm(
      `Kill trial ${trial.id}?`,
      "Its processes end at once. What was not saved in a checkpoint is lost.",
      "Kill",
    ))
  )
    return;
  const said = toast(`Killing trial ${trial.id} …`);
  try {
    await send("POST", path("trials", trial.id, "kill"));
    const stop = listen({
      change: async () => {
        const now = await get(path("trials", trial.id)).catch(() => trial);
        if (!isOver(now.state)) return;
        stop();
        said.say(`Trial ${trial.id} is ${now.state}.`, "good");
      },
    });
  } catch (error) {
    said.say([error.message, error.next].filter(Boolean).join(" "), "bad");
  }
  done();
}

export const labelField = () =>
  h("label.labelled", "Label", h("input.field", { name: "label", required: true, maxlength: 64 }));
