"""Short searches for the lab: a script that reports curves, and a check of what was recorded."""

from __future__ import annotations

from typing import Any

from determined.platform.search import events as e
from determined.platform.search.canonical_json import dump
from determined.platform.search.searcher import Searcher
from determined.store import Trial
from tests.support.lab import Lab

# Reports a loss that falls with `quality`, epoch by epoch; saves and leaves when asked to.
CURVE = """
import json, sys, time
import determined as det
from determined import core

EPOCHS = %(epochs)s

def main(ctx):
    info = det.get_cluster_info()
    quality, epoch = info.trial.hparams["quality"], 0
    %(first)s
    if info.latest_checkpoint:
        with ctx.checkpoint.restore_path(info.latest_checkpoint) as path:
            epoch = int((path / "epoch").read_text())
    length = info.trial._config["searcher"].get("max_length") or EPOCHS
    while epoch < length:
        epoch += 1
        time.sleep(%(seconds)s)
        ctx.train.report_validation_metrics(epoch, %(metrics)s)
        ctx.train.report_progress(epoch / length)
        %(each)s
        if ctx.preempt.should_preempt():
            save(ctx, epoch)
            return
    save(ctx, epoch)

def save(ctx, epoch):
    with ctx.checkpoint.store_path({"steps_completed": epoch}) as (path, _):
        (path / "epoch").write_text(str(epoch))

with core.init() as ctx:
    main(ctx)
"""
# At the rung, all but the trial that goes on wait until the supervisor says what it wants.
UNTIL_ASKED = """
        for _ in range(1200 if epoch == 2 and info.trial.trial_id != %d else 0):
            if ctx.preempt.should_preempt():
                break
            time.sleep(0.05)
"""
SPACE = {"quality": {"type": "double", "minval": 0.0, "maxval": 1.0}}


def curve(**changes: Any) -> str:
    usual = {
        "epochs": 4,
        "seconds": 0.0,
        "first": "pass",
        "each": "pass",
        "metrics": '{"loss": 1 - quality + 1 / epoch, "epochs": epoch}',
    }
    return CURVE % {**usual, **changes}


def searcher(name: str, **changes: Any) -> dict[str, Any]:
    halving = {"max_time": 4, "time_metric": "epochs", "divisor": 2} if "a" in name[:2] else {}
    if name in ("grid", "random", "custom"):
        halving = {}
    return {"name": name, "metric": "loss", **halving, **changes}


def actions(lab: Lab, experiment_id: int, kind: str) -> list[dict[str, Any]]:
    steps = lab.service.reader.search_steps(experiment_id)
    return [action for step in steps for action in step.actions if action["kind"] == kind]


def events(lab: Lab, experiment_id: int) -> list[str]:
    steps = lab.service.reader.search_steps(experiment_id)
    return [step.event["event"]["kind"] for step in steps]


def check_replay(lab: Lab, experiment_id: int) -> Searcher:
    """Replay all recorded events from zero: the same decisions, and the same state at the end."""
    record = lab.experiment(experiment_id)
    origin = record.environment.get("searched_with") or record.config
    replayed = Searcher(
        origin["searcher"],
        origin["hyperparameters"],
        origin["reproducibility"]["experiment_seed"],
        repeat=record.config.get("repeat"),
    )
    steps = lab.service.reader.search_steps(experiment_id)
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    for step in steps:
        made = replayed.replay(step.event)
        assert dump([e.to_json(action) for action in made.actions]) == dump(step.actions)
    if record.state == "COMPLETED":
        state = lab.service.reader.searcher_state(experiment_id)
        assert dump(replayed.snapshot()) == dump(state)
    return replayed


def states(trials: list[Trial]) -> list[str]:
    return [trial.state for trial in trials]


METHOD = """
import os, time

class Climb:
    def __init__(self, search):
        self.search, self.best, self.points = search, None, {}

    def start(self):
        print("the method starts")
        for _ in range(2):
            self.step(0.5)

    def step(self, quality):
        quality += self.search.random.uniform(0, 0.1)
        trial = self.search.create({"quality": quality}, reason="near the best so far")
        self.points[trial] = quality

    def validated(self, trial, metrics, steps):
        if self.best is None or metrics["loss"] < self.best[0]:
            self.best = metrics["loss"], self.points[trial]
        if steps == 3:
            self.search.stop(trial, "three are enough")

    def ended(self, trial, reason):
        if len(self.points) < self.search.config["tries"]:
            self.step(self.best[1])

    def raised(self, limits):
        self.search.resume(0, str(limits))


class Broken(Climb):
    def validated(self, trial, metrics, steps):
        raise RuntimeError("I cannot read this")


class Stuck(Climb):
    def validated(self, trial, metrics, steps):
        time.sleep(600)
"""


def custom(lab: Lab, name: str, **options: Any) -> int:
    settings = searcher("custom", tries=5) | {"class": f"my_search:{name}"}
    files = {"my_search.py": METHOD}
    return lab.create(curve(epochs=40, seconds=0.02), searcher=settings, files=files, **options)
