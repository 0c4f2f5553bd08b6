"""What a live update costs: the new points, whatever is there already."""

from __future__ import annotations

import contextlib
import statistics
import time
from array import array
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.dashboard.served import Dashboard
from benchmarks.dashboard.stream import Follower
from determined import journal
from determined.store import NewExperiment, NewTrial, Run, Writer

_NEW_POINTS = 100
_BLOCK = 10_000


class LiveRun:
    """A run that reports its batches straight into the store, as a supervisor does."""

    def __init__(self, home: Path) -> None:
        self._writer = Writer(home)
        self._steps = self._reports = 0
        with self._writer.transaction() as tx:
            self._experiment_id = tx.create_experiment(
                NewExperiment(config={}, owner="ada", name="live")
            ).id
            trial = tx.create_trial(NewTrial(self._experiment_id, "live", 1, {"lr": 0.1}))
            self.run: Run = tx.create_run(
                trial.id, folder=str(home / "live"), slots=[0], steps_completed=0
            )

    @property
    def key(self) -> str:
        """The curve as the API names it."""
        return f"{self.run.trial_id}:training:loss:batches"

    def report(self, points: int) -> None:
        """One report with the values of so many batches."""
        self._steps += points
        self._reports += 1
        values = array("d", np.random.default_rng(self._steps).normal(1, 0.1, points).tobytes())
        batches = journal.BatchColumns(points, {"loss": journal.Column(values)})
        record = journal.Metrics("training", self._steps, {"loss": 1.0}, batches, time=time.time())
        with self._writer.transaction(durable=False) as tx:
            tx.read_journal("live", self.run.trial_id, self.run.run_id, [record], self._reports)

    def close(self) -> None:
        """Take it all out of the store again."""
        with self._writer.transaction() as tx:
            tx.delete_experiment(self._experiment_id)
        self._writer.close()


def measure_ticks(dashboard: Dashboard, ticks: int, points: int) -> dict[str, Any]:
    """Ticks of 100 new points on an empty curve, and on one that has very many already."""
    found: dict[str, Any] = {"ticks": ticks, "new_points": _NEW_POINTS}
    with contextlib.closing(LiveRun(dashboard.home)) as run:
        run.report(_NEW_POINTS)
        found["empty"] = _ticks(dashboard, run, ticks)
        for _ in range(points // _BLOCK):
            run.report(_BLOCK)
        found[f"{points:,} points"] = _ticks(dashboard, run, ticks)
    return found


def _ticks(dashboard: Dashboard, run: LiveRun, ticks: int) -> dict[str, Any]:
    follower = Follower(dashboard, series=run.key)
    idle = _cpu_of(dashboard, lambda: time.sleep(3)) / 6  # it looks twice a second
    waits: list[float] = []

    def report_all() -> None:
        for number in range(1, ticks + 1):
            run.report(_NEW_POINTS)
            sent = time.perf_counter()
            while len(follower.points()) < number:
                time.sleep(0.002)
            waits.append(follower.points()[number - 1].time - sent)

    used = _cpu_of(dashboard, report_all) / ticks
    follower.close()
    run.report(_NEW_POINTS)  # the message that lets it stop
    follower.join()
    return {
        "bytes": statistics.median(message.num_bytes for message in follower.points()),
        "ms_to_arrive": round(1e3 * statistics.median(waits), 1),
        "server_cpu_ms": round(1e3 * used, 2),
        "server_cpu_ms_idle": round(1e3 * idle, 2),
    }


def _cpu_of(dashboard: Dashboard, work: Any) -> float:
    begin = dashboard.cpu_seconds()
    work()
    return dashboard.cpu_seconds() - begin
