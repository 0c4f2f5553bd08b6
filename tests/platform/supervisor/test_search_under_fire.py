"""A search on the digits, killed again and again: it ends as its own record says."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.support import faults
from tests.support.lab import Lab
from tests.support.searches import check_replay

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

# A linear net on scikit-learn's digits: the data of the example without the weight of torch.
TRAIN = """
import pickle
import numpy as np
from sklearn.datasets import load_digits
import determined as det
from determined import core

data = load_digits()
images, labels = data.data / 16, np.eye(10)[data.target]
held_out = np.arange(len(images)) % 5 == 0

def loss(weights):
    scores = images[held_out] @ weights
    scores -= scores.max(axis=1, keepdims=True)
    logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return float(-(logs * labels[held_out]).sum(axis=1).mean())

def main(ctx):
    info = det.get_cluster_info()
    generator = np.random.default_rng(info.trial.trial_seed)
    epoch, weights = 0, generator.normal(0, 0.1, (64, 10))
    if info.latest_checkpoint:
        with ctx.checkpoint.restore_path(info.latest_checkpoint) as path:
            epoch, weights = pickle.loads((path / "state").read_bytes())
    while epoch < 9:
        x, y = images[~held_out], labels[~held_out]
        for part in np.array_split(np.arange(len(x)), 40):
            scores = np.exp(x[part] @ weights - (x[part] @ weights).max(axis=1, keepdims=True))
            wrong = scores / scores.sum(axis=1, keepdims=True) - y[part]
            weights = weights - info.trial.hparams["learning_rate"] * x[part].T @ wrong / len(part)
        epoch += 1
        ctx.train.report_validation_metrics(epoch, {"loss": loss(weights), "epochs": epoch})
        with ctx.checkpoint.store_path({"steps_completed": epoch}) as (path, _):
            (path / "state").write_bytes(pickle.dumps((epoch, weights)))
        if ctx.preempt.should_preempt():
            return

with core.init() as ctx:
    main(ctx)
"""
KILLS = 4 if faults.factor() == 1 else 20


def test_a_search_that_is_killed_at_random_ends_as_recorded(lab: Lab) -> None:
    experiment_id = lab.create(
        TRAIN,
        hyperparameters={
            "learning_rate": {"type": "log", "base": 10, "minval": -3, "maxval": 1},
        },
        searcher={
            "name": "adaptive_asha",
            "metric": "loss",
            "max_trials": 12,
            "max_time": 9,
            "time_metric": "epochs",
            "divisor": 3,
            "max_concurrent_trials": 4,
        },
        max_restarts=2 * KILLS,
    )
    generator = random.Random(5)
    killed: list[str] = []
    while len(killed) < KILLS and lab.experiment(experiment_id).state == "ACTIVE":
        lab.service.wake_if_needed()
        time.sleep(generator.uniform(0.1, 1.5))
        killed += _kill_one(lab, generator)
    ended = lab.wait(experiment_id)
    trials = lab.trials(experiment_id)
    assert (ended.state, len(trials)) == ("COMPLETED", 12), killed
    assert {trial.state for trial in trials} == {"COMPLETED"}, [t.reason for t in trials]
    assert len(killed) == KILLS
    replayed = check_replay(lab, experiment_id)
    assert all(trial.exited for trial in replayed.desk.trials)
    assert ended.best_validation is not None


def _kill_one(lab: Lab, generator: random.Random) -> list[str]:
    """Kill the supervisor, a keeper or a trial, whichever comes; return what it was."""
    kind = generator.choice(["supervisor", "keeper", "script.py"])
    found = [p for p in lab.processes() if kind in _words(p)]
    if not found:
        return []
    with contextlib.suppress(ProcessLookupError):
        os.kill(generator.choice(found).pid, signal.SIGKILL)
    return [kind]


def _words(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        words = process.cmdline()
        return " ".join([Path(words[0]).name, *words[1:]]) if words else ""
    return ""
