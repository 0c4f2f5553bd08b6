"""Let all searches race on the same learning curves, side by side.

python -m benchmarks.search               trains the curves first, if that has not been done
python -m benchmarks.search --seeds 5     fewer seeds
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Any

from benchmarks.search import report, tables
from benchmarks.search.contenders import WORKERS, Run, contenders
from benchmarks.search.race import BUDGET, one_round
from benchmarks.search.tasks import Recorded, all_tasks, typical

_RESULTS = tables.PATH.parent
_GRID = [round(BUDGET * share / 40) for share in range(2, 41)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="only contenders that have these words"
    )
    parser.add_argument("--synthetic", action="store_true", help="no trained curves")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--output", type=pathlib.Path, default=_RESULTS / "search.json")
    options = parser.parse_args()
    if not options.synthetic and not tables.PATH.exists():
        subprocess.run([sys.executable, "-m", "benchmarks.search.tables"], check=True)

    players = {
        name: play
        for name, play in contenders().items()
        if not options.only or any(word in name for word in options.only)
    }
    tasks = [t for t in all_tasks() if not options.synthetic or not isinstance(t, Recorded)]
    results: dict[str, Any] = {
        "budget": BUDGET,
        "seeds": options.seeds,
        "workers": WORKERS,
        "grid": _GRID,
        "tasks": {},
        "thought": {},
    }
    thought: dict[str, list[Run]] = {name: [] for name in players}
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        for task in tasks:
            began = time.monotonic()
            jobs = [(task.name, seed, list(players)) for seed in range(options.seeds)]
            rounds = pool.map(one_round, jobs, chunksize=1)
            runs = {name: [turn[name] for turn in rounds] for name in players}
            for name, found in runs.items():
                thought[name] += found
            results["tasks"][task.name] = {
                "best": task.best(),
                "typical": typical(task),
                "runs": {name: _summary(found) for name, found in runs.items()},
            }
            print(f"{task.name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    results["thought"] = {name: _thought(found) for name, found in thought.items()}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(results, indent=1))
    print(report.text(results))
    if not options.only:
        print("\n" + "\n".join(report.goals(results)))
    if report.draw(results, options.output.with_suffix(".png")):
        print(f"Drew {options.output.with_suffix('.png')}")
    print(f"Written to {options.output}")


def _summary(found: list[Run]) -> dict[str, Any]:
    return {
        **{
            when: [run.at(BUDGET * share) for run in found] for when, share in report.SHARES.items()
        },
        "path": [statistics.median(run.at(units) for run in found) for units in _GRID],
        "trials": [run.num_trials for run in found],
    }


def _thought(found: list[Run]) -> dict[str, float]:
    return {
        part: statistics.median(seconds for run in found for seconds in getattr(run, part))
        for part in ("new_trial", "result")
    }


if __name__ == "__main__":
    main()
