"""A trial whose end depends on each of its steps, and a look at all that is left of it."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import psutil

from determined.platform.runs.folder import RunFolder
from determined.storage import build
from tests.support.lab import Lab
from tests.support.searches import check_replay

STEPS, EVERY = 12, 3

# No torch: what is tested is the platform. The "weights" are a hash of all that was trained.
SCRIPT = f"""
import hashlib, sys, time
import determined as det
from determined import core

def main(ctx):
    info = det.get_cluster_info()
    step, weights = 0, str(info.trial.hparams.get("start", 0))
    if info.latest_checkpoint:
        with ctx.checkpoint.restore_path(info.latest_checkpoint) as path:
            step, weights = (path / "state").read_text().split()
    step = int(step)
    while step < {STEPS}:
        step += 1
        weights = hashlib.sha256(f"{{weights}} {{step}}".encode()).hexdigest()
        loss = int(weights[:8], 16) / 2**32
        print("step", step, flush=True)
        ctx.train.report_training_metrics(step, {{"loss": loss}})
        time.sleep(%(seconds)s)
        if step %% {EVERY} == 0:
            ctx.train.report_validation_metrics(step, {{"loss": loss}})
            with ctx.checkpoint.store_path({{"steps_completed": step}}) as (path, _):
                (path / "state").write_text(f"{{step}} {{weights}}")
            if ctx.preempt.should_preempt():
                return
    print("ends with", weights, flush=True)

with core.init() as ctx:
    main(ctx)
"""


def script(seconds: float | str = 0.0) -> str:
    """The trial; its steps take so long, or as long as an expression says."""
    return SCRIPT % {"seconds": seconds}


def unbroken(start: int = 0) -> tuple[str, list[float]]:
    """The weights and the losses of a run that nobody disturbs."""
    weights, losses = str(start), []
    for step in range(1, STEPS + 1):
        weights = hashlib.sha256(f"{weights} {step}".encode()).hexdigest()
        losses.append(int(weights[:8], 16) / 2**32)
    return weights, losses


def check_as_unbroken(lab: Lab, experiment_id: int, *, with_logs: bool = True) -> None:
    """All that was recorded is that of an undisturbed run, once; and nothing else is left."""
    ended = lab.wait(experiment_id)
    assert ended.state == "COMPLETED", lab.account()
    lab.until(lambda: not lab.service.reader.has_chores())
    (trial,) = lab.trials(experiment_id)
    weights, losses = unbroken(trial.hparams.get("start", 0))
    assert trial.state == "COMPLETED", trial.reason
    assert _losses(lab, trial.id, "training") == list(enumerate(losses, start=1))
    validations = [(step, losses[step - 1]) for step in range(EVERY, STEPS + 1, EVERY)]
    assert _losses(lab, trial.id, "validation") == validations
    assert ended.best_validation == min(loss for _, loss in validations)
    check_replay(lab, experiment_id)
    if with_logs:
        _check_logs(lab, experiment_id, weights)
    _check_checkpoints(lab, experiment_id, weights)
    _check_runs(lab, experiment_id)


def _losses(lab: Lab, trial_id: int, group: str) -> list[tuple[int, float]]:
    reports = lab.service.reader.metrics.reports(trial_id, group)
    return [(report.steps_completed, report.metrics["loss"]) for report in reports]


def _check_logs(lab: Lab, experiment_id: int, weights: str) -> None:
    """Each run logs the steps that it does, each once; together they are all."""
    logs = [lab.log(run) for run in lab.runs(experiment_id)]
    done: set[int] = set()
    for log in logs:
        steps = [int(step) for step in re.findall(r"step (\d+)$", log, re.MULTILINE)]
        assert steps == list(range(steps[0], steps[0] + len(steps))) if steps else True
        assert not steps or not (steps[0] - 1) % EVERY, "it goes on from a checkpoint"
        done.update(steps)
    assert done == set(range(1, STEPS + 1))
    assert f"ends with {weights}" in logs[-1] or len(logs) > 1


def _check_checkpoints(lab: Lab, experiment_id: int, weights: str) -> None:
    """What is recorded is there and whole, what is there is recorded."""
    config = lab.experiment(experiment_id).config
    storage = build(config["checkpoint_storage"])
    records = lab.checkpoints(experiment_id)
    there = {record.uuid for record in records if record.state == "COMPLETED"}
    assert all(storage.verify(uuid) for uuid in there)
    steps = {record.steps_completed for record in records}
    assert steps == set(range(EVERY, STEPS + 1, EVERY))
    latest = max(records, key=lambda record: (record.steps_completed, record.report_time))
    with storage.restore_path(latest.uuid) as path:
        assert (path / "state").read_text() == f"{STEPS} {weights}"


def check_storage_is_recorded(lab: Lab) -> None:
    """No checkpoint lies in the storage that no experiment knows, and nothing half-made."""
    known: set[str] = set()
    for experiment in lab.service.reader.experiments().rows:
        checkpoints = lab.checkpoints(experiment.id)
        known |= {c.uuid for c in checkpoints if c.state != "DELETED"}
    folders = {path.name for path in lab.home.checkpoints.iterdir() if path.is_dir()}
    there = folders - {".det-locks"}
    assert there == known, (there - known, known - there)


def _check_runs(lab: Lab, experiment_id: int) -> None:
    """Runs are numbered in order, each has ended, and no lock is held."""
    runs = lab.runs(experiment_id)
    assert [run.run_id for run in runs] == list(range(1, len(runs) + 1))
    for run in runs:
        folder = RunFolder(run.folder)
        assert run.ended is not None
        assert not folder.is_locked
        assert not list(Path(run.folder).glob(".exit.json.*")), "a draft was left"


def check_only_the_supervisor_lives(lab: Lab) -> None:
    """No process of the home but the supervisor (and what waits to be reaped)."""

    def others() -> list[str]:
        found = []
        for process in lab.processes():
            try:
                words = process.cmdline()
                is_dead = process.status() == psutil.STATUS_ZOMBIE
            except psutil.Error:
                continue
            if not is_dead and "determined.platform.supervisor" not in words:
                found.append(json.dumps(words))
        return found

    lab.until(lambda: not others())
