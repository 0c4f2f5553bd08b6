"""The life of experiments, on real processes."""

from __future__ import annotations

import itertools
import random
from functools import partial

import pytest

from determined.platform.service import NotFoundError, RefusedError
from tests.support.lab import Lab

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

# Trains a number that depends on every step; saves and stops when asked to.
STEADY = """
import sys, time
import determined as det
from determined import core

def main(ctx):
    info = det.get_cluster_info()
    steps, value = 0, float(info.trial.trial_seed % 1000)
    if info.latest_checkpoint:
        with ctx.checkpoint.restore_path(info.latest_checkpoint) as path:
            steps, value = eval((path / "state").read_text())
    print("starts at", steps, flush=True)
    while steps < 30:
        steps, value = steps + 1, (value * 3.7 + steps) % 101
        ctx.train.report_training_metrics(steps, {"value": value})
        ctx.train.report_progress(steps / 30)
        time.sleep(0.03)
        if ctx.preempt.should_preempt():
            with ctx.checkpoint.store_path({"steps_completed": steps}) as (path, _):
                (path / "state").write_text(repr((steps, value)))
            return
    ctx.train.report_validation_metrics(steps, {"loss": value})

with core.init() as ctx:
    main(ctx)
"""


def test_a_script_runs_to_its_end_with_its_hyperparameters(lab: Lab) -> None:
    script = """
import os, pathlib
import determined as det
from determined import core
with core.init() as ctx:
    info = det.get_cluster_info()
    assert info.task_type == "TRIAL" and info.trial.hparams == {"lr": 0.5}
    assert pathlib.Path.cwd() == pathlib.Path(os.environ["DET_WORKDIR"])
    ctx.train.report_validation_metrics(1, {"loss": 0.25})
"""
    ended = lab.wait(lab.create(script, hyperparameters={"lr": 0.5}))
    assert (ended.state, ended.best_validation, ended.progress) == ("COMPLETED", 0.25, 1.0)
    (trial,) = lab.trials(ended.id)
    (run,) = lab.runs(ended.id)
    assert (trial.state, run.exit_code, run.reason) == ("COMPLETED", 0, "finished")


def test_a_trial_paused_again_and_again_ends_as_an_unbroken_one(lab: Lab) -> None:
    unbroken = lab.wait(lab.create(STEADY))
    broken = lab.create(STEADY)
    for _ in range(4):
        before = lab.trials(broken)[0].total_batches
        lab.until(partial(_has_moved, lab, broken, before))
        if lab.experiment(broken).state == "COMPLETED":
            break
        lab.service.pause(broken)
        lab.until(lambda: not lab.service.reader.unfinished_runs())
        assert lab.experiment(broken).state == "PAUSED"
        lab.service.activate(broken)
    ended = lab.wait(broken)
    assert ended.best_validation == unbroken.best_validation
    assert len(lab.runs(broken)) >= 3
    values = [_values(lab, experiment.id) for experiment in (unbroken, ended)]
    assert values[0] == values[1]
    assert [step for step, _ in values[1]] == list(range(1, 31))


def _has_moved(lab: Lab, experiment_id: int, steps: int) -> bool:
    is_over = lab.experiment(experiment_id).state == "COMPLETED"
    return is_over or lab.trials(experiment_id)[0].total_batches > steps


def _values(lab: Lab, experiment_id: int) -> list[tuple[int, float]]:
    (trial,) = lab.trials(experiment_id)
    reports = lab.service.reader.metrics.reports(trial.id, "training")
    return [(report.steps_completed, report.metrics["value"]) for report in reports]


def test_the_supervisor_may_die_at_any_moment(lab: Lab) -> None:
    unbroken = lab.wait(lab.create(STEADY))
    experiment_id = lab.create(STEADY)
    generator = random.Random(3)
    for _ in range(5):
        target = min(lab.trials(experiment_id)[0].total_batches + generator.randint(0, 5), 28)
        lab.until(partial(_has_moved, lab, experiment_id, target - 1))
        lab.kill_supervisor()
    ended = lab.wait(experiment_id)
    assert (ended.state, ended.best_validation) == ("COMPLETED", unbroken.best_validation)
    assert len(lab.runs(experiment_id)) == 1  # the run outlived them all
    assert _values(lab, experiment_id) == _values(lab, unbroken.id)


def test_a_failing_script_is_restarted_and_shows_its_error(lab: Lab) -> None:
    script = "import os\nraise ValueError('no data in run ' + os.environ['DET_TRIAL_RUN_ID'])"
    ended = lab.wait(lab.create(script, max_restarts=1))
    assert ended.state == "ERROR"
    (trial,) = lab.trials(ended.id)
    assert "ValueError: no data in run 2" in trial.reason
    assert [run.exit_code for run in lab.runs(ended.id)] == [1, 1]
    assert "Traceback" in lab.log(lab.runs(ended.id)[0])


def test_the_same_error_twice_is_enough(lab: Lab) -> None:
    ended = lab.wait(lab.create("raise ValueError('no data')", max_restarts=5))
    assert len(lab.runs(ended.id)) == 2
    assert "same error twice" in lab.trials(ended.id)[0].reason


SAVES_AND_FAILS = """
import os
from determined import core
with core.init() as ctx:
    with ctx.checkpoint.store_path({"steps_completed": 1}) as (path, _):
        (path / "state").write_text("x")
raise ValueError("in run " + os.environ["DET_TRIAL_RUN_ID"])
"""


@pytest.mark.parametrize(("max_restarts", "runs"), [(0, 1), (1, 3)])
def test_a_checkpoint_at_the_same_step_again_is_no_progress(
    lab: Lab, max_restarts: int, runs: int
) -> None:
    ended = lab.wait(lab.create(SAVES_AND_FAILS, max_restarts=max_restarts))
    assert ended.state == "ERROR"
    assert len(lab.runs(ended.id)) == runs  # the first one's checkpoint is progress


def test_a_run_whose_keeper_is_lost_goes_on_from_its_checkpoint(lab: Lab) -> None:
    experiment_id = lab.create(STEADY)
    lab.until(lambda: lab.trials(experiment_id)[0].total_batches >= 5)
    (keeper,) = [
        p for p in lab.processes() if "determined.platform.runs.keeper" in " ".join(p.cmdline())
    ]
    keeper.kill()
    ended = lab.wait(experiment_id)
    assert ended.state == "COMPLETED"
    (trial,) = lab.trials(experiment_id)
    assert trial.restarts == 0
    assert len(lab.runs(experiment_id)) == 2


@pytest.mark.parametrize("verb", ["cancel", "kill"])
def test_cancel_and_kill_end_an_experiment(lab: Lab, verb: str) -> None:
    experiment_id = lab.create(STEADY)
    lab.until(lambda: lab.trials(experiment_id)[0].total_batches >= 2)
    getattr(lab.service, verb)(experiment_id)
    getattr(lab.service, verb)(experiment_id)  # twice is once
    assert lab.wait(experiment_id).state == "CANCELED"
    lab.until(lambda: not lab.service.reader.unfinished_runs())
    saved = lab.checkpoints(experiment_id)
    assert bool(saved) is (verb == "cancel")


def test_verbs_that_the_state_does_not_allow_are_refused(lab: Lab) -> None:
    experiment_id = lab.wait(lab.create("pass")).id
    with pytest.raises(RefusedError, match="experiment 1 is COMPLETED"):
        lab.service.pause(experiment_id)
    with pytest.raises(NotFoundError, match="There is no experiment 99"):
        lab.service.kill(99)
    lab.service.cancel(experiment_id)  # nothing to do
    assert lab.experiment(experiment_id).state == "COMPLETED"


def test_a_paused_experiment_waits_until_it_is_activated(lab: Lab) -> None:
    experiment_id = lab.create("pass", paused=True)
    assert lab.wait(lab.create("pass")).state == "COMPLETED"  # another one goes through
    assert (lab.experiment(experiment_id).state, lab.runs(experiment_id)) == ("PAUSED", [])
    lab.service.activate(experiment_id)
    assert lab.wait(experiment_id).state == "COMPLETED"


def test_invalid_hyperparameters_end_a_trial_without_error(lab: Lab) -> None:
    script = """
import determined as det
from determined import core
with core.init() as ctx:
    raise det.InvalidHP("too large")
"""
    ended = lab.wait(lab.create(script))
    (trial,) = lab.trials(ended.id)
    assert (trial.state, trial.reason) == ("COMPLETED", "invalid hyperparameters")
    assert lab.runs(ended.id)[0].exit_code == 0


def test_a_trial_that_runs_too_long_stops_with_a_checkpoint(lab: Lab) -> None:
    for limit in (2, 8, 30):  # a limit that ends before the first step only kills it
        endless = STEADY.replace("steps < 30", "True").replace("steps / 30", "0.5")
        ended = lab.wait(lab.create(endless, max_trial_wall_time=limit))
        (trial,) = lab.trials(ended.id)
        reason = f"reached max_trial_wall_time ({limit} s)"
        assert (trial.state, trial.reason) == ("COMPLETED", reason)
        if trial.total_batches > 0:
            break
    assert lab.checkpoints(ended.id)


def test_slots_in_use_for_too_long_together_end_the_experiment(lab: Lab) -> None:
    endless = STEADY.replace("steps < 30", "True").replace("steps / 30", "0.5")
    search = {"name": "random", "metric": "loss", "max_trials": 2}
    experiment_id = lab.create(endless, searcher=search, max_slot_time=3)
    lab.until(lambda: len(lab.runs(experiment_id)) == 2)
    lab.kill_supervisor()  # the next one knows what was used before
    ended = lab.wait(experiment_id)
    assert (ended.state, ended.reason) == ("COMPLETED", "reached max_slot_time (3 s)")
    used = [(run.ended or 0) - run.created for run in lab.runs(experiment_id)]
    assert sum(used) >= 3


def test_slots_are_shared_and_priorities_respected(lab: Lab) -> None:
    script = "import time, os; print(os.environ['DET_SLOT_IDS']); time.sleep(0.3)"
    made = [lab.create(script, resources={"slots_per_trial": slots}) for slots in (1, 2, 1, 0)]
    for experiment_id in made:
        assert lab.wait(experiment_id).state == "COMPLETED"
    runs = list(itertools.chain.from_iterable(lab.runs(experiment_id) for experiment_id in made))
    assert [len(run.slots) for run in runs] == [1, 2, 1, 0]
    assert lab.log(runs[1]).strip() == "[0, 1]"
    with pytest.raises(RefusedError, match="slots_per_trial is 3, but this machine has 2"):
        lab.create(script, resources={"slots_per_trial": 3})
