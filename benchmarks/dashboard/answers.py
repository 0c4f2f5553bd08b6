"""How fast the server answers every kind of question, and what it holds after very many."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.dashboard.large_things import LargeThings
from benchmarks.dashboard.served import Dashboard

MOST_MILLISECONDS = 100.0
MOST_CHART_KB = 500.0


def questions(large: LargeThings) -> dict[str, str]:
    """What the pages ask, by what they show."""
    search, log, hundred = large.search, large.log_trial, large.metrics_trial
    keys = ";".join(f"{trial}:training:loss:batches" for trial in large.curve_trials)
    one = f"{large.curve_trials[0]}:training:loss:batches"
    many = ";".join(f"{hundred}:validation:metric_{n:03}" for n in range(100))
    trials = ",".join(map(str, large.curve_trials))
    return {
        "session": "/api/session",
        "1,000 experiments, first page": "/api/experiments?archived=0&limit=100",
        "experiments by a hyperparameter": "/api/experiments?sort=hparam:lr&limit=100",
        "experiments by a metric, with columns": (
            "/api/experiments?sort=metric:validation.accuracy&columns=hparam:lr,hparam:seed,"
            "metric:validation.accuracy&limit=100"
        ),
        "experiments, a text": "/api/experiments?search=sweep-09&limit=100",
        "spark lines of a page": "/api/experiments/sparks?px=60&ids="
        + ",".join(str(n) for n in range(20, 120)),
        "experiment with 10,000 trials": f"/api/experiments/{search}",
        "its trials, first page": f"/api/experiments/{search}/trials",
        "its trials by a hyperparameter": f"/api/experiments/{search}/trials?sort=hparam:lr",
        "its trials by a metric, page 90": (
            f"/api/experiments/{search}/trials?sort=metric:validation.accuracy&offset=9000"
        ),
        "its trials for parallel coordinates": f"/api/experiments/{search}/points",
        "its rungs": f"/api/experiments/{search}/rungs",
        "its importance": f"/api/experiments/{search}/importance",
        "its contour": f"/api/experiments/{search}/contour?x=lr&y=net.units",
        "its logs": f"/api/experiments/{search}/logs?tail=1",
        "50 curves of 1,000,000 points": f"/api/series?keys={keys}&px=1200",
        "... smoothed": f"/api/series?keys={keys}&px=1200&smooth=0.99",
        "... by time": f"/api/series?keys={keys}&px=1200&x=relative",
        "... zoomed to 10,000 steps": f"/api/series?keys={keys}&px=1200&from=500000&to=510000",
        "... zoomed to every point": f"/api/series?keys={keys}&px=1200&from=500000&to=500250",
        "1 curve of 1,000,000 points": f"/api/series?keys={one}&px=1200",
        "... zoomed to exact points": f"/api/series?keys={one}&px=1200&from=500000&to=501000",
        "50 trials side by side": f"/api/compare?trials={trials}",
        "trial with 1,000,000 points": f"/api/trials/{large.curve_trials[0]}",
        "trial with 100 metrics": f"/api/trials/{hundred}",
        "all 100 curves": f"/api/series?keys={many}&px=400",
        "log of 200 MB, first page": f"/api/trials/{log}/logs",
        "... in the middle": f"/api/trials/{log}/logs?from_line=2400000",
        "... the end": f"/api/trials/{log}/logs?tail=1",
        "... a text in 200 MB, at its end": f"/api/trials/{log}/logs?search=out+of+memory",
        "queue": "/api/queue",
        "the page's shell": "/",
    }


def measure_answers(
    dashboard: Dashboard, large: LargeThings, rounds: int
) -> dict[str, dict[str, Any]]:
    """Every question several times; the first answer is told apart, for it fills caches."""
    found = {}
    for name, path in questions(large).items():
        first = dashboard.fetch(path).milliseconds
        begin = dashboard.cpu_seconds()
        taken = [dashboard.fetch(path) for _ in range(rounds)]
        cpu = (dashboard.cpu_seconds() - begin) / rounds
        found[name] = {
            "path": path if len(path) < 120 else f"{path[:117]}...",
            "first_ms": round(first, 1),
            "median_ms": round(statistics.median(answer.milliseconds for answer in taken), 1),
            "server_cpu_ms": round(1e3 * cpu, 1),
            "wire_kb": round(taken[-1].wire_bytes / 1e3, 1),
            "content_kb": round(len(taken[-1].content) / 1e3, 1),
        }
    return found


def measure_memory(dashboard: Dashboard, large: LargeThings, requests: int) -> dict[str, Any]:
    """What the server holds while it answers requests of all kinds in turn."""
    paths = list(questions(large).values())
    held = [round(dashboard.megabytes(), 1)]
    for number in range(1, requests + 1):
        dashboard.fetch(paths[number % len(paths)])
        if number % max(1, requests // 10) == 0:
            held.append(round(dashboard.megabytes(), 1))
    return {"requests": requests, "megabytes": held}
