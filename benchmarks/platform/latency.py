"""How soon a trial obeys: pause, activate, and the stop that a search decides."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from benchmarks.platform.figure import Figure, median
from benchmarks.platform.site import Site, open_site
from determined.store import TrialFilter

_FOREVER = str(10**9)


def measure(is_quick: bool) -> list[Figure]:
    with open_site() as site:
        pauses = pause_and_activate(site, rounds=3 if is_quick else 10)
        stops = {
            "stop": [stop for _ in range(1 if is_quick else 3) for stop in searched_stops(site)]
        }
    return [
        Figure(
            "pause to slot free, with the save", median(pauses, "pause"), goal=0.5, samples=pauses
        ),
        Figure("activate to next batch", median(pauses, "activate"), goal=1.0, samples=pauses),
        Figure(
            "report to slot free, where a search stops",
            median(stops, "stop"),
            goal=0.5,
            samples=stops,
        ),
    ]


def pause_and_activate(site: Site, rounds: int) -> dict[str, list[float]]:
    """Pause and activate an experiment again and again; from request to effect, in seconds."""
    marks = site.folder / "marks"
    variables = {"MARKS": str(marks), "BATCHES": _FOREVER}
    experiment_id = site.create("net", variables=variables, hyperparameters={"lr": 0.1})
    site.until(lambda: marks.exists() and len(_first_batches(marks)) == 1)
    samples: dict[str, list[float]] = {"pause": [], "activate": []}
    for number in range(2, rounds + 2):
        time.sleep(0.5)  # in the middle of training
        began = time.time()
        site.service.pause(experiment_id)
        site.until(lambda: not site.service.reader.unfinished_runs())
        samples["pause"].append(time.time() - began)
        began = time.time()
        site.service.activate(experiment_id)
        site.until(lambda number=number: len(_first_batches(marks)) == number)  # type: ignore[misc]
        samples["activate"].append(_first_batches(marks)[-1] - began)
    site.service.kill(experiment_id)
    site.until(lambda: not site.service.reader.unfinished_runs())
    return samples


def _first_batches(marks: Path) -> list[float]:
    """When the first batch of each run was trained."""
    return [float(line.split()[2]) for line in marks.read_text().splitlines()]


def searched_stops(site: Site) -> list[float]:
    """Seconds from the reports that led to a stop to the slots that became free by it."""
    experiment_id = site.create(
        "net",
        variables={"BATCHES": "6000", "VALIDATE_EVERY": "200"},
        hyperparameters={"lr": {"type": "log", "minval": -4, "maxval": -1}},
        searcher={
            "name": "async_halving",
            "metric": "loss",
            "max_trials": 16,
            "num_rungs": 4,
            "time_metric": "batches",
            "max_time": 6000,
        },
    )
    site.finish(experiment_id)
    reader = site.service.reader
    stopped = {
        action["request_id"]: step.event["event"]["steps"]
        for step in reader.search_steps(experiment_id)
        for action in step.actions
        if action["kind"] == "stop" and step.event["event"]["kind"] == "validation_completed"
    }
    found = []
    for trial in reader.trials(TrialFilter(experiment_id=experiment_id)).rows:
        if (steps := stopped.get(trial.request_id)) is None or steps >= 6000:
            continue
        told = {r.steps_completed: r.time for r in reader.metrics.reports(trial.id, "validation")}
        (run,) = reader.runs(trial.id)
        assert run.ended is not None
        found.append(run.ended - told[steps])
    assert found, "the search stopped nobody"
    return [statistics.median(found)]
