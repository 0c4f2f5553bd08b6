"""Stores filled without training: the records are real, only nobody trained for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from determined.config import Completion, load
from determined.journal import Checkpoint, Metrics, RunStarted
from determined.store import NewExperiment, NewTrial, Run, Writer

_AT_A_TIME = 500


def trials(home: Path, count: int) -> tuple[Writer, list[Run]]:
    """Make a store with one experiment of so many running trials."""
    writer = Writer(home)
    with writer.transaction() as tx:
        new = NewExperiment(config={}, owner="me", name="bench", searcher_metric="loss")
        experiment = tx.create_experiment(new)
        runs = []
        for number in range(count):
            trial = tx.create_trial(NewTrial(experiment.id, f"r{number}", 0, {"lr": 0.1}))
            runs.append(tx.create_run(trial.id, folder="", slots=[], steps_completed=0))
    return writer, runs


def finished_experiments(home: Path, count: int) -> None:
    """Add experiments that are over: a trial, a run, ten validations and a checkpoint each."""
    config = _config(home)
    writer = Writer(home)
    for first in range(0, count, _AT_A_TIME):
        with writer.transaction() as tx:
            for number in range(first, min(first + _AT_A_TIME, count)):
                _finish_one(tx, config, f"finished-{number}")
    writer.close()


def _finish_one(tx: Any, config: dict[str, Any], name: str) -> None:
    new = NewExperiment(config=config, owner="me", name=name, searcher_metric="loss")
    experiment = tx.create_experiment(new)
    trial = tx.create_trial(NewTrial(experiment.id, f"{experiment.id}", 0, {"lr": 0.1}))
    run = tx.create_run(trial.id, folder="", slots=[0], steps_completed=0)
    said = [
        RunStarted(1, 0),
        *(Metrics("validation", step, {"loss": 1 / step}) for step in range(1, 11)),
        Checkpoint(f"{experiment.id:032x}", 10, {"state": 10}, {}),
    ]
    tx.read_journal(f"journal-{trial.id}", trial.id, run.run_id, said, 1)
    tx.end_run(trial.id, run.run_id, 0)
    tx.update_trial(trial.id, state="COMPLETED")
    tx.update_experiment(experiment.id, state="COMPLETED", progress=1.0)


def _config(home: Path) -> dict[str, Any]:
    values = {
        "name": "finished",
        "entrypoint": "python3 train.py",
        "searcher": {"name": "single", "metric": "loss"},
    }
    storage = {"type": "shared_fs", "host_path": str(home / "checkpoints")}
    loaded = load(values, completion=Completion(created=0, checkpoint_storage=storage))
    return loaded.effective
