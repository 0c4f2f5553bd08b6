// What one can do to experiments, and the watch on what became of it: a click is not an effect.

import { ApiError, get, hasVerb, path, send } from "./api.js";
import { count } from "./format.js";
import { listen } from "./live.js";
import { confirm, dialog, textField } from "./widgets/dialog.js";
import { button, isActive, isOver } from "./widgets/parts.js";
import { toast, wordsOf } from "./widgets/toast.js";

/**
 * @import { Toast } from "./widgets/toast.js"
 *
 * @typedef {"pause" | "activate" | "cancel" | "kill" | "archive" | "unarchive" | "delete"} VerbName
 * @typedef {{ id: number, state: string, archived: boolean }} Row what a verb must know of an experiment
 *
 * @typedef {object} Verb
 * @property {string} text
 * @property {string} doing
 * @property {boolean} [danger]
 * @property {(row: Row) => boolean} fits
 * @property {string} [warn]
 */

/** @type {Record<VerbName, Verb>} */
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
    warn: "The processes are killed at once. Anything not saved in a checkpoint is lost.",
  },
  archive: { text: "Archive", doing: "Archiving", fits: (row) => isOver(row.state) && !row.archived },
  unarchive: { text: "Unarchive", doing: "Unarchiving", fits: (row) => row.archived },
  delete: {
    text: "Delete",
    doing: "Deleting",
    danger: true,
    fits: (row) => isOver(row.state) || row.state === "DELETE_FAILED",
    warn: "Its metrics, logs and checkpoints are deleted as well. This cannot be undone.",
  },
};

const NAMES = /** @type {VerbName[]} */ (Object.keys(VERBS));

/**
 * @param {(Row & { unmanaged: boolean })[]} rows
 * @param {(name: VerbName) => unknown} [done]
 */
export function verbButtons(rows, done = (_) => {}) {
  const managed = rows.filter((row) => !row.unmanaged);
  return NAMES.filter(hasVerb)
    .map((name) => ({
      name,
      verb: VERBS[name],
      fitting: (name.endsWith("archive") || name === "delete" ? rows : managed).filter(VERBS[name].fits),
    }))
    .filter(({ fitting }) => fitting.length)
    .map(({ name, verb, fitting }) =>
      button(rows.length > 1 ? `${verb.text} ${fitting.length}` : verb.text, () => act(name, fitting, done), {
        kind: verb.danger ? "danger" : "",
      }),
    );
}

/** @param {Row[]} rows */
const named = (rows) => (rows.length === 1 ? `experiment ${rows[0].id}` : count(rows.length, "experiment"));

/**
 * @param {VerbName} name
 * @param {Row[]} rows
 * @param {(name: VerbName) => unknown} [done]
 */
export async function act(name, rows, done = (_) => {}) {
  const verb = VERBS[name];
  const fitting = rows.filter(verb.fits);
  if (!fitting.length) return;
  if (verb.warn && !(await confirm(`${verb.text} ${named(fitting)}?`, verb.warn, verb.text))) return;
  const said = toast(`${verb.doing} ${named(fitting)} …`, "busy");
  try {
    const refused = await ask(name, fitting);
    const taken = fitting.filter((row) => !refused.has(row.id));
    if (taken.length) watch(name, taken, said);
    else said.close();
    if (refused.size) toast([...refused.values()].join(" "), "bad");
  } catch (error) {
    said.say(wordsOf(error), "bad");
  }
  done(name);
}

/**
 * -> the errors of those that were refused, by id
 * @param {VerbName} name
 * @param {Row[]} rows
 * @returns {Promise<Map<number, string>>}
 */
async function ask(name, rows) {
  if (rows.length === 1) {
    await send("POST", path("experiments", rows[0].id, name));
    return new Map();
  }
  return askMany({ verb: name, ids: rows.map((row) => row.id) });
}

/** @param {Api.Post<"/api/experiments/verbs">["body"]} body */
async function askMany(body) {
  const { results } = await send("POST", "/api/experiments/verbs", body);
  const refused = Object.entries(results).filter(([, one]) => !one.ok);
  return new Map(refused.map(([id, one]) => [Number(id), one.error ?? ""]));
}

const GONE = "DELETED";
/** @param {Row} row */
const ENDS = (row) => isOver(row.state);
/** @type {Record<VerbName, (row: Row, running: boolean) => boolean>} */
const REACHED = {
  pause: (row, running) => ENDS(row) || (row.state === "PAUSED" && !running),
  activate: (row) => ENDS(row) || isActive(row.state),
  cancel: ENDS,
  kill: ENDS,
  archive: (row) => row.archived,
  unarchive: (row) => !row.archived,
  delete: (row) => row.state === GONE || row.state === "DELETE_FAILED",
};

/**
 * Waits for the effect: the state, and for a pause also that no process is left.
 * @param {VerbName} name
 * @param {Row[]} rows
 * @param {Toast} said
 */
function watch(name, rows, said) {
  const waiting = new Set(rows.map((row) => row.id));
  /** @type {Row[]} */
  const reached = [];
  let [busy, again] = [false, false];
  const look = async () => {
    again = busy; // what comes while it looks is looked at afterwards
    if (busy) return;
    busy = true;
    try {
      const running = new Set((await get("/api/queue")).running.map((one) => one.experiment_id));
      for (const id of [...waiting]) {
        const row = await current(id);
        if (!REACHED[name](row, running.has(id))) continue;
        waiting.delete(id);
        reached.push(row);
      }
      reached.sort((a, b) => a.id - b.id);
      if (!waiting.size) {
        said.say(await effects(name, reached), reached.some(hasFailed) ? "bad" : "good");
        stop();
      } else if (rows.length > 1) {
        said.say(`${VERBS[name].doing}: ${reached.length} of ${named(rows)} …`, "busy");
      }
    } catch {
      // the next change tries again
    }
    busy = false;
    if (again && waiting.size) look();
  };
  const stop = listen({ change: look, again: look });
  look();
}

/** @param {Row} row */
const hasFailed = (row) => row.state === "DELETE_FAILED";

/**
 * @param {number} id
 * @returns {Promise<Row>}
 */
async function current(id) {
  try {
    return await get(path("experiments", id));
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return { id, state: GONE, archived: false };
    throw error;
  }
}

const MOST_TOLD = 3; // beyond, how many says more than each by itself

/**
 * @param {VerbName} name
 * @param {Row[]} rows
 */
async function effects(name, rows) {
  const word = (/** @type {Row} */ { state }) =>
    name.endsWith("archive") ? `${VERBS[name].text}d` : (WORDS[state] ?? state);
  if (rows.length <= MOST_TOLD)
    return (await Promise.all(rows.map((row) => effect(row, word(row))))).join(" ");
  const words = rows.map(word);
  return [...new Set(words)]
    .map((it) => `${it}: ${count(words.filter((one) => one === it).length, "experiment")}.`)
    .join(" ");
}

/** @type {Record<string, string>} */
const WORDS = {
  PAUSED: "Paused",
  ACTIVE: "Active",
  RUNNING: "Running",
  QUEUED: "Queued",
  CANCELED: "Canceled",
  COMPLETED: "Completed",
  ERROR: "Ended with an error",
  DELETED: "Deleted",
  DELETE_FAILED: "Could not be deleted",
};

/**
 * @param {Row} row
 * @param {string} word
 */
async function effect(row, word) {
  const start = `${word}: experiment ${row.id}`;
  if (word !== WORDS.PAUSED && word !== WORDS.CANCELED) return `${start}.`;
  const { total, rows } = await get(path("experiments", row.id, "trials"), {
    sort: "steps",
    order: "desc",
    limit: 1,
  });
  if (!total || !rows[0].steps) return `${start} before its first batch.`;
  return total === 1
    ? `${start} at batch ${rows[0].steps}.`
    : `${start}, ${count(total, "trial")}, the furthest at batch ${rows[0].steps}.`;
}

/**
 * @param {Api.TrialDetail} trial
 * @param {() => unknown} done
 */
export async function killTrial(trial, done) {
  if (
    !(await confirm(
      `Kill trial ${trial.id}?`,
      "Its processes are killed at once. Anything not saved in a checkpoint is lost.",
      "Kill",
    ))
  )
    return;
  const said = toast(`Killing trial ${trial.id} …`, "busy");
  try {
    await send("POST", path("trials", trial.id, "kill"));
    const look = async () => {
      const now = await get(path("trials", trial.id)).catch(() => trial);
      if (!isOver(now.state)) return;
      stop();
      said.say(`Trial ${trial.id} is ${now.state}.`, "good");
    };
    const stop = listen({ change: look, again: look });
    look();
  } catch (error) {
    said.say(wordsOf(error), "bad");
  }
  done();
}

/** @param {Row[]} rows */
export async function labelExperiments(rows) {
  const fields = [textField("label", "Label", { required: true, maxlength: 128 })];
  const answer = await dialog(`Label ${count(rows.length, "experiment")}`, fields, { ok: "Add" });
  if (!answer) return;
  const { label } = answer;
  const ids = rows.map((row) => row.id);
  try {
    const refused = await askMany({ verb: "label", ids, label });
    const done = ids.length - refused.size;
    if (done) toast(`Labelled ${count(done, "experiment")} “${label}”.`, "good");
    if (refused.size) toast([...refused.values()].join(" "), "bad");
  } catch (error) {
    toast(wordsOf(error), "bad");
  }
}
