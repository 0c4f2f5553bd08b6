"""Ours: a home with the same data, written as the supervisor does."""

from __future__ import annotations

import time
from array import array
from pathlib import Path

from benchmarks.dashboard.peers.data import POINTS, TRIALS, curve, trials
from benchmarks.dashboard.scene import a_scene
from determined import journal

_BLOCK = 10_000


def fill(home: Path, points: int = POINTS, count: int = TRIALS) -> None:
    """One experiment: the first trial has the long curve, all have a result."""
    with a_scene(home, time.time() - 3600) as scene:
        record = scene.experiment(
            name="search",
            hyperparameters={
                "lr": {"type": "log", "minval": -4, "maxval": -1},
                "units": {"type": "int", "minval": 16, "maxval": 256},
            },
            searcher={"name": "random", "metric": "loss", "max_trials": count},
        )
        for number, result in enumerate(trials(count)):
            trial = scene.trial(record, {"lr": result.lr, "units": result.units})
            run = scene.run(trial)
            if number == 0:
                values = curve(points)
                for first in range(0, len(values), _BLOCK):
                    part = array("d", values[first : first + _BLOCK])
                    batches = journal.BatchColumns(len(part), {"loss": journal.Column(part)})
                    last, mean = first + len(part), {"loss": sum(part) / len(part)}
                    scene.say(
                        run, journal.Metrics("training", last, mean, batches, time=scene.clock())
                    )
            loss = {"loss": result.loss}
            scene.say(run, journal.Metrics("validation", 1, loss, time=scene.clock()))
            with scene.writer.transaction() as tx:
                tx.end_run(run.trial_id, run.run_id, 0)
                tx.update_trial(trial.id, state="COMPLETED", progress=1.0)
        scene.set_experiment(record.id, state="COMPLETED", progress=1.0)
