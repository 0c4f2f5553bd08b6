// One stream of server-sent events per page: what changed, new points, new log lines.

const listeners = new Set();
let source = null;
let wants = {};
let state = "connecting";
let lastId = "";
let retry = 0;
let timer = 0;
let waits = false;

const MOST_SERIES = 200;

// listen({change, points, log, state}) -> a function that stops listening
export function listen(handlers) {
  listeners.add(handlers);
  handlers.state?.(state);
  return () => listeners.delete(handlers);
}

// Asks the stream for new points of these series and new lines of this trial's log as well:
// want({series: [keys], log: trial}). It goes on from the last message, so that nothing is missed
// between the answer to a question and the first message; before the first it waits for it.
export function want({ series = [], log = null }) {
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
  source = new EventSource(`/api/events?${query}`);
  source.onopen = () => {
    retry = 0;
    become("live");
  };
  source.onerror = async () => {
    const failed = source;
    failed.close();
    const next = (await isLocked()) ? "locked" : "lost";
    if (source !== failed) return; // somebody connected meanwhile
    become(next);
    retry += 1;
    timer = setTimeout(connect, Math.min(10000, 500 * 2 ** Math.min(retry, 5)));
  };
  for (const name of ["change", "points", "log"]) {
    source.addEventListener(name, (event) => {
      if (event.lastEventId) lastId = event.lastEventId.replace(/\d+$/, "0"); // the last part counts lines of one log
      tell(name, name === "points" ? byKey(JSON.parse(event.data)) : JSON.parse(event.data));
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

const byKey = ({ series }) =>
  Object.fromEntries(series.map(({ key, steps, values }) => [key, { x: steps, y: values }]));

function become(next) {
  if (next === state) return;
  const wasLost = state === "lost" || state === "locked";
  state = next;
  tell("state", state);
  if (wasLost && state === "live") tell("again"); // what happened meanwhile was missed: ask once more
}

function tell(name, data) {
  for (const handlers of [...listeners]) handlers[name]?.(data);
}

addEventListener("pagehide", () => source?.close());
addEventListener("pageshow", (event) => event.persisted && connect());
