"""How much of the time is training that counts, when the trial is killed again and again.

Effective time is that of the batches which no later run trained again, at the pace of this trial,
over all the time that passed. The short form kills more often and scales: what a kill costs does
not depend on when the next one comes.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import statistics
import time

from benchmarks.platform.figure import Figure
from benchmarks.platform.marks import Mark, read_marks
from benchmarks.platform.site import Site, open_site
from determined.platform.runs.folder import RunFolder

_KILL_EVERY_SECONDS = 60.0
_SAVE_EVERY_SECONDS = 2.0
_MARK_EVERY = 20
_FOREVER = str(10**9)


def measure(is_quick: bool) -> list[Figure]:
    with open_site(slots=1) as site:
        pace = _pace(site)
        every, kills = (6.0, 3) if is_quick else (_KILL_EVERY_SECONDS, 3)
        marks = _train_under_fire(site, pace, every, kills)
    lost = _lost_per_kill(marks, kills)
    samples = {"lost per kill (s)": [lost], "batch (ms)": [1000 * pace]}
    share = 100 * (1 - lost / _KILL_EVERY_SECONDS)
    name = "effective time with a kill a minute, a checkpoint every 2 s"
    scaled = f"{name} (from kills every {every:g} s)" if is_quick else name
    return [Figure(scaled, share, "%", goal=97, is_floor=True, samples=samples)]


def _pace(site: Site) -> float:
    """The seconds that a batch takes here, which also loads the helper."""
    marks = site.folder / "pace"
    variables = {"MARKS": str(marks), "MARK_EVERY": str(_MARK_EVERY), "BATCHES": "2000"}
    site.finish(site.create("net", variables=variables, hyperparameters={"lr": 0.1}))
    return statistics.median(_paces(read_marks(marks))) / _MARK_EVERY


def _train_under_fire(site: Site, pace: float, every: float, kills: int) -> list[Mark]:
    path = site.folder / "marks"
    variables = {
        "MARKS": str(path),
        "MARK_EVERY": str(_MARK_EVERY),
        "BATCHES": _FOREVER,
        "SAVE_EVERY": str(max(1, round(_SAVE_EVERY_SECONDS / pace))),
    }
    experiment_id = site.create(
        "net", variables=variables, hyperparameters={"lr": 0.1}, max_restarts=1000
    )
    site.until(lambda: path.exists() and len(read_marks(path)) > 10)
    for _ in range(kills):
        time.sleep(every)
        run = site.runs(experiment_id)[-1]
        trial = RunFolder(run.folder).entrypoint
        assert trial is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(trial.pid, signal.SIGKILL)
        site.until(lambda run=run: max(m.run for m in read_marks(path)) > run.run_id)  # type: ignore[misc]
    time.sleep(every / 2)
    marks = read_marks(path)
    site.service.kill(experiment_id)
    site.until(lambda: not site.service.reader.unfinished_runs())
    return marks


def _lost_per_kill(marks: list[Mark], kills: int) -> float:
    """Seconds between two runs, and those of batches that had to be trained again."""
    pace = statistics.median(_paces(marks)) / _MARK_EVERY
    useful = (marks[-1].batch - marks[0].batch) * pace
    unbroken = sum(
        after.time - before.time - (after.batch - before.batch) * pace
        for before, after in itertools.pairwise(marks)
        if before.run == after.run
    )  # what a busy machine took, not a kill
    passed = marks[-1].time - marks[0].time
    return (passed - useful - unbroken) / kills


def _paces(marks: list[Mark]) -> list[float]:
    return [
        after.time - before.time
        for before, after in itertools.pairwise(marks)
        if before.run == after.run and after.batch - before.batch == _MARK_EVERY
    ]
