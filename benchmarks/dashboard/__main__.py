"""How fast the dashboard is when there is much, and what it costs.

    python -m benchmarks.dashboard FOLDER [--peers PYTHON] [--only PART ...] [--json FILE]

What is looked at is made in FOLDER the first time, which takes some minutes and 1.5 GB; measuring
takes less than four. PYTHON is an interpreter that has trackio, MLflow and optuna-dashboard; what
is not installed there is left out, with the reason.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.dashboard.answers import measure_answers, measure_memory
from benchmarks.dashboard.browser import a_browser
from benchmarks.dashboard.large_things import find_large_things
from benchmarks.dashboard.made_once import make_once
from benchmarks.dashboard.make_store import make_full
from benchmarks.dashboard.pages import measure_pages, measure_zoom, pages
from benchmarks.dashboard.peers.compare import measure_peers
from benchmarks.dashboard.report import show
from benchmarks.dashboard.served import Dashboard
from benchmarks.dashboard.ticks import measure_ticks
from benchmarks.dashboard.training import measure_flood, measure_training

PARTS = ("answers", "pages", "zoom", "ticks", "memory", "training", "flood", "peers")


@dataclass(frozen=True)
class Size:
    """How often things are done."""

    answers: int = 9
    views: int = 3
    ticks: int = 10
    points: int = 1_000_000
    requests: int = 1000
    turns: int = 6
    turn_seconds: float = 2.0
    peer_views: int = 2


def measure(folder: Path, parts: Collection[str], size: Size, peers: str) -> dict[str, Any]:
    """Measure what is asked for; what it is measured on is made where it is missing."""
    home = folder / "home"
    make_once(home, make_full)
    large = find_large_things(home)
    found: dict[str, Any] = {}
    with a_browser() as browser:
        if browser is None and {"pages", "zoom", "peers"} & {*parts}:
            print("Without Chromium and Playwright: no pages, zoom or peers.", file=sys.stderr)
        with contextlib.closing(Dashboard(home)) as dashboard:
            if browser is not None and "pages" in parts:
                found["pages"] = measure_pages(browser, dashboard, pages(large), size.views)
            if browser is not None and "zoom" in parts:
                found["zoom"] = measure_zoom(browser, dashboard, large, size.views)
            if "answers" in parts:
                found["answers"] = measure_answers(dashboard, large, size.answers)
            if "ticks" in parts:
                found["ticks"] = measure_ticks(dashboard, size.ticks, size.points)
            if "memory" in parts:
                found["memory"] = measure_memory(dashboard, large, size.requests)
        if "training" in parts:
            found["training"] = measure_training(size.turns, size.turn_seconds)
        if "flood" in parts:
            found["flood"] = measure_flood(size.turns, size.turn_seconds)
        if browser is not None and "peers" in parts:
            found["peers"] = measure_peers(browser, folder / "peers", peers, size.peer_views)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--peers", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    before = _load()
    result = measure(options.folder, options.only, Size(), options.peers)
    result["machine"] = {"cores": os.cpu_count(), "load_before": before, "load_after": _load()}
    print(show(result))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


def _load() -> float:
    return round(os.getloadavg()[0], 1)


if __name__ == "__main__":
    main()
