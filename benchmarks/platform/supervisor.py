"""What the supervisor takes of the machine: with nothing to do, and with 16 trials that live."""

from __future__ import annotations

import time
from pathlib import Path

import psutil

from benchmarks.platform.figure import Figure
from benchmarks.platform.site import Site, open_site

_TRIALS = 16


def measure(is_quick: bool) -> list[Figure]:
    seconds = 6.0 if is_quick else 30.0
    with open_site(slots=_TRIALS) as site:
        site.finish(site.create("reports"))
        time.sleep(1)
        rest, rest_megabytes = _watch(site.supervisor, seconds)
        live: dict[str, tuple[float, float]] = {}
        for name, pause in (("a second", 1.0), ("a tenth of a second", 0.1)):
            experiment_id = _start_trials(site, pause)
            live[name] = _watch(site.supervisor, seconds)
            site.service.kill(experiment_id)
            site.until(lambda: not site.service.reader.unfinished_runs())
    return [
        Figure("supervisor at rest, of a core", rest, "%", goal=0.1),
        Figure("supervisor at rest, memory", rest_megabytes, "MB", goal=60),
        *(
            Figure(
                f"supervisor, 16 trials that report once {name}, of a core", percent, "%", goal=3
            )
            for name, (percent, _) in live.items()
        ),
        Figure("supervisor with 16 trials, memory", live["a second"][1], "MB", goal=100),
    ]


def _start_trials(site: Site, pause: float) -> int:
    experiment_id = site.create(
        "reports",
        variables={"PAUSE": str(pause), "REPORTS": str(10**6)},
        searcher={"name": "random", "metric": "loss", "max_trials": _TRIALS},
        hyperparameters={"lr": {"type": "double", "minval": 0, "maxval": 1}},
    )
    site.until(lambda: len(site.service.reader.unfinished_runs()) == _TRIALS)
    time.sleep(3)  # all of them are under way
    return experiment_id


def _watch(process: psutil.Process, seconds: float) -> tuple[float, float]:
    """Return the percentage of a core that a process takes meanwhile, and its megabytes after."""
    before, began = _seconds_used(process.pid), time.monotonic()
    time.sleep(seconds)
    percent = 100 * (_seconds_used(process.pid) - before) / (time.monotonic() - began)
    return percent, process.memory_info().rss / 1e6


def _seconds_used(pid: int) -> float:
    """Of the processor, to the nanosecond: what `ps` shows has steps of 10 ms."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(path.read_text().split()[0]) for path in threads) / 1e9
