// One stream of server-sent events per page: what changed, new points, new log lines.

const listeners = new Set();
let source = null;
let wants = {};
let state = "connecting";
let lastId = "";
let retry = 0;
let timer = 0;

// listen({change, points, log, state}) -> a function that stops listening
export function listen(handlers) {
  listeners.add(handlers);
  handlers.state?.(state);
  return () => listeners.delete(handlers);
}

// Asks the stream for new points of these series and new lines of this trial's log as well.
export function want(more) {
  const next = { ...more };
  if (JSON.stringify(next) === JSON.stringify(wants)) return;
  wants = next;
  connect();
}

export function connect() {
  source?.close();
  clearTimeout(timer);
  const query = new URLSearchParams(wants);
  if (lastId) query.set("since", lastId);
  source = new EventSource(`/api/events?${query}`);
  source.onopen = () => {
    retry = 0;
    become("live");
  };
  source.onerror = () => {
    source.close();
    become("lost");
    retry += 1;
    timer = setTimeout(connect, Math.min(10000, 500 * 2 ** Math.min(retry, 5)));
  };
  for (const name of ["change", "points", "log"]) {
    source.addEventListener(name, (event) => {
      if (event.lastEventId) lastId = event.lastEventId;
      tell(name, JSON.parse(event.data));
    });
  }
}

function become(next) {
  if (next === state) return;
  const wasLost = state === "lost";
  state = next;
  tell("state", state);
  if (wasLost && state === "live") tell("again"); // what happened meanwhile was missed: ask once more
}

function tell(name, data) {
  for (const handlers of [...listeners]) handlers[name]?.(data);
}

addEventListener("pagehide", () => source?.close());
addEventListener("pageshow", (event) => event.persisted && connect());
