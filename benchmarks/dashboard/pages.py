"""How soon each page is seen in a browser, and how soon a chart answers the mouse."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict
from typing import Any

from benchmarks.dashboard.browser import Browser, Shown, seen_after
from benchmarks.dashboard.large_things import LargeThings
from benchmarks.dashboard.served import Dashboard

MOST_MILLISECONDS = 1000.0
MOST_ZOOM_MILLISECONDS = 300.0
CURVES = "50 curves of 1,000,000 points"


def pages(large: LargeThings) -> dict[str, Shown]:
    """Every page, on what is large of its kind."""
    search, trial = f"/experiments/{large.search}", f"/trials/{large.metrics_trial}"
    view = f"{search}/search?view="
    trials = ",".join(map(str, large.curve_trials))
    cell, chart = ".table td", ".chart-count"
    return {
        "1,000 experiments": Shown("/", cell, "sweep-"),
        "search with 10,000 trials: overview": Shown(search, ".big-number", r"\d"),
        "... curves of the best 50": Shown(f"{search}/curves", chart, "point"),
        "... trials": Shown(f"{search}/trials", cell, r"\d"),
        "... parallel coordinates": Shown(f"{search}/search", cell, r"\d"),
        "... scatter": Shown(f"{view}scatter", ".chart-foot", "trials"),
        "... contour": Shown(f"{view}contour", ".chart-foot", "interpolated"),
        "... heat map": Shown(f"{view}heat", ".chart-foot", "cell"),
        "... importance": Shown(f"{view}importance", ".importance .number", "%"),
        "... rungs": Shown(f"{view}rungs", ".rung", "seen"),
        "... code": Shown(f"{search}/code", ".browser a", r"train\.py"),
        "... configuration": Shown(f"{search}/config", ".code", "searcher"),
        "... notes": Shown(f"{search}/notes", "header", "Notes"),
        "checkpoints": Shown("/experiments/1/checkpoints", cell, r"\d"),
        CURVES: _curves(large),
        "trial with 1,000,000 points": Shown(
            f"/trials/{large.curve_trials[0]}/metrics", chart, r"of [\d,]+ points"
        ),
        "trial with 100 metrics": Shown(trial, ".big-number", r"\d"),
        "... all of them": Shown(f"{trial}/metrics", chart, "point"),
        "log of 200 MB": Shown(f"/trials/{large.log_trial}/logs", ".log-line", r"\d"),
        "... of the experiment": Shown(
            f"/experiments/{large.log_experiment}/logs", ".log-line", r"\d"
        ),
        "system metrics": Shown("/trials/1/system", ".chart-grid canvas"),
        "profile": Shown("/trials/1/profile", "strong", "profile"),
        "50 trials side by side": Shown(f"/compare?trials={trials}", ".differs td", r"\d"),
        "models": Shown("/models", "td", r"\d"),
        "queue": Shown("/queue", ".slot", "Slot"),
    }


def _curves(large: LargeThings) -> Shown:
    path = f"/experiments/{large.curves}/curves?metric=training.loss"
    return Shown(path, ".chart-count", r"of [\d,]+ points")


def measure_pages(
    browser: Browser, dashboard: Dashboard, shown: dict[str, Shown], rounds: int
) -> dict[str, dict[str, Any]]:
    """Medians of first views, each by a browser that has nothing in its cache."""
    found = {}
    for name, wanted in shown.items():
        views = []
        server = dashboard.cpu_seconds()
        for _ in range(rounds):
            with browser.page(dashboard.root, dashboard.entrance) as page:
                views.append(asdict(browser.view(page, wanted)))
        server = dashboard.cpu_seconds() - server
        medians = {key: round(statistics.median(v[key] for v in views), 1) for key in views[0]}
        found[name] = {"path": wanted.path[:80], **medians}
        found[name]["server_cpu_ms"] = round(1e3 * server / rounds, 1)
    return found


def measure_zoom(
    browser: Browser, dashboard: Dashboard, large: LargeThings, rounds: int
) -> dict[str, dict[str, Any]]:
    """Drag over a part of the 50 curves, and of that again, until every point is drawn by itself.

    The time is that from letting the mouse go until the new curves are drawn.
    """
    steps: dict[str, list[dict[str, Any]]] = {}
    for _ in range(rounds):
        with browser.page(dashboard.root, dashboard.entrance) as page:
            browser.view(page, _curves(large))
            for number, share in enumerate((0.02, 0.01), start=1):
                steps.setdefault(f"zoom {number}", []).append(_drag(browser, page, share))
            steps.setdefault("whole range", []).append(_undo(browser, page))
    return {
        name: {
            "shown_ms": round(statistics.median(one["shown_ms"] for one in taken), 1),
            "browser_cpu_ms": round(statistics.median(one["browser_cpu_ms"] for one in taken), 1),
            "count": taken[-1]["count"],
        }
        for name, taken in steps.items()
    }


def _drag(browser: Browser, page: Any, share: float) -> dict[str, Any]:
    box = page.locator(".plot").first.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + box["width"] * share, y + 2, steps=3)
    return _timed(browser, page, page.mouse.up)


def _undo(browser: Browser, page: Any) -> dict[str, Any]:
    return _timed(browser, page, page.get_by_role("button", name="Whole range").click)


def _timed(browser: Browser, page: Any, act: Any) -> dict[str, Any]:
    count = page.locator(".chart-count")
    before, begin = count.inner_text(), browser.cpu_ms()
    act()
    changed = f"document.querySelector('.chart-count').textContent !== {json.dumps(before)}"
    shown = seen_after(page, "releasedAt", changed)
    cpu = browser.cpu_ms() - begin
    return {"shown_ms": shown, "browser_cpu_ms": cpu, "count": count.inner_text()}
