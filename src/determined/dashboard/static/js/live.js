// One stream of server-sent events per page: what changed, new points, new log lines.

/**
 * @typedef {"connecting" | "live" | "lost" | "locked"} State
 * @typedef {{ experiments?: number[], trials?: number[], supervisor?: { alive: boolean } }} Change
 * @typedef {Record<string, { x: number[], y: (Api.Number | null)[] }>} Points by the key of their series
 * @typedef {{ trial_id: number, lines: Api.LineJson[], total?: number }} Log
 *
 * @typedef {object} Handlers
 * @property {(change: Change) => unknown} [change]
 * @property {(points: Points) => unknown} [points]
 * @property {(log: Log) => unknown} [log]
 * @property {(state: State) => unknown} [state]
 * @property {() => unknown} [again] the stream was lost and is back
 */

/** @type {Set<Handlers>} */
const listeners = new Set();
/** @type {EventSource | null} */
let source = null;
/** @type {{ series?: string, log?: string }} */
let wants = {};
/** @type {State} */
let state = "connecting";
let lastId = "";
let retry = 0;
let timer = 0;
let waits = false;

const MOST_SERIES = 200;

/**
 * listen({change, points, log, state}) -> a function that stops listening
 * @param {Handlers} handlers
 */
export function listen(handlers) {
  listeners.add(handlers);
  handlers.state?.(state);
  return () => listeners.delete(handlers);
}

/**
 * Asks the stream for new points of these series and new lines of this trial's log as well:
 * want({series: [keys], log: trial}). It goes on from the last message, so that nothing is missed
 * between the answer to a question and the first message; before the first it waits for it.
 * @param {{ series?: string[], log?: number | null }} what
 */
export function want({ series = [], log = null }) {
  /** @type {typeof wants} */
  const next = {};
  if (series.length) next.series = series.slice(0, MOST_SERIES).join(";");
  if (log !== null) next.log = String(log);
  if (JSON.stringify(next) === JSON.stringify(wants)) return;
  wants = next;
  if (lastId) connect();
  else waits = true;
}

export function connect() {
  source?.close();
  clearTimeout(timer);
  const query = new URLSearchParams(wants);
  if (lastId) query.set("since", lastId);
  waits &&= !lastId;
  const opened = new EventSource(`/api/events?${query}`);
  source = opened;
  opened.onopen = () => {
    retry = 0;
    become("live");
  };
  opened.onerror = async () => {
    opened.close();
    const next = (await isLocked()) ? "locked" : "lost";
    if (source !== opened) return; // somebody connected meanwhile
    become(next);
    retry += 1;
    timer = setTimeout(connect, Math.min(10000, 500 * 2 ** Math.min(retry, 5)));
  };
  on("change", (data) => tell((one) => one.change?.(data)));
  on("points", (data) => tell((one) => one.points?.(byKey(data))));
  on("log", (data) => tell((one) => one.log?.(data)));

  /**
   * @param {string} name
   * @param {(data: any) => void} hear gets what the server sent, as it is
   */
  function on(name, hear) {
    opened.addEventListener(name, (event) => {
      if (event.lastEventId) lastId = event.lastEventId.replace(/\d+$/, "0"); // the last part counts lines of one log
      hear(JSON.parse(event.data));
      if (waits) connect();
    });
  }
}

// An event source does not tell why it failed: the cookie may be no longer good.
const isLocked = () =>
  fetch("/api/session").then(
    ({ status }) => status === 401,
    () => false,
  );

/**
 * @param {{ series: { key: string, steps: number[], values: (Api.Number | null)[] }[] }} data
 * @returns {Points}
 */
const byKey = ({ series }) =>
  Object.fromEntries(series.map(({ key, steps, values }) => [key, { x: steps, y: values }]));

/** @param {State} next */
function become(next) {
  if (next === state) return;
  const wasLost = state === "lost" || state === "locked";
  state = next;
  tell((one) => one.state?.(next));
  if (wasLost && next === "live") tell((one) => one.again?.()); // what happened meanwhile was missed: ask once more
}

/** @param {(handlers: Handlers) => unknown} what */
function tell(what) {
  for (const handlers of [...listeners]) what(handlers);
}

addEventListener("pagehide", () => source?.close());
addEventListener("pageshow", (event) => event.persisted && connect());
