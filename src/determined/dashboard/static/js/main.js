// Where the dashboard starts: the routes, the frame, and the one page that is shown.

import * as keys from "./keys.js";
import * as live from "./live.js";
import { here, route, start } from "./router.js";
import { startShell, showPlace } from "./shell.js";

route("/", () => import("./pages/experiments.js"));
route("/experiments/:id/:tab?", () => import("./pages/experiment.js"));
route("/trials/:id/:tab?", () => import("./pages/trial.js"));
route("/compare", () => import("./pages/compare.js"));
route("/models", () => import("./pages/models.js"));
route("/models/:name", () => import("./pages/model.js"));
route("/queue", () => import("./pages/queue.js"));

let current = null;

async function arrive() {
  const place = here();
  showPlace();
  if (current?.place.pattern === place.pattern && current.page?.accepts(place)) {
    current.place = place;
    current.page.moved(place);
    return;
  }
  const opening = { place, page: null };
  current?.page?.close();
  current = opening;
  const { open } = await place.load();
  if (current !== opening) return; // the reader went on meanwhile
  opening.page = open(opening.place);
  document.getElementById("main").replaceChildren(opening.page.node);
  scrollTo(0, 0);
}

startShell();
keys.start();
live.connect();
start(arrive);
