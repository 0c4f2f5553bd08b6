// Where the dashboard starts: the routes, the frame, and the one page that is shown.

import { byId } from "./dom.js";
import * as keys from "./keys.js";
import * as live from "./live.js";
import { here, route, start } from "./router.js";
import { showPlace, startShell } from "./shell.js";

route("/", () => import("./pages/experiments.js"));
route("/experiments/:id/:tab?", () => import("./pages/experiment.js"));
route("/trials", () => import("./pages/trials.js"));
route("/trials/:id/:tab?", () => import("./pages/trial.js"));
route("/compare", () => import("./pages/compare.js"));
route("/models", () => import("./pages/models.js"));
route("/models/:name", () => import("./pages/model.js"));
route("/queue", () => import("./pages/queue.js"));

/**
 * @import { Page } from "./page.js"
 * @import { Place } from "./router.js"
 */

/** @type {{ place: Place, page: Page | null } | null} */
let current = null;

async function arrive() {
  const place = here();
  showPlace();
  if (current?.place.pattern === place.pattern && current.page?.accepts(place)) {
    current.place = place;
    current.page.moved(place);
    return;
  }
  /** @type {NonNullable<typeof current>} */
  const opening = { place, page: null };
  current?.page?.close();
  current = opening;
  const { open } = await place.load();
  if (current !== opening) return; // the reader went on meanwhile
  opening.page = open(opening.place);
  byId("main").replaceChildren(opening.page.node);
  scrollTo(0, 0);
}

startShell();
keys.start();
live.connect();
start(arrive);
