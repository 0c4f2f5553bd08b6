"""Forks on the platform: exact where nothing changes, and changed once where something does."""

from __future__ import annotations

import contextlib
import signal
from functools import partial
from pathlib import Path

import psutil
import pytest

from determined.errors import RefusedError
from determined.platform.maintenance.rebuild.rebuild import rebuild
from determined.platform.service.forking import Forks
from determined.platform.supervisor import presence
from tests.support import tracked
from tests.support.faults import factor
from tests.support.forked import LENGTH, create, finished, rows, script, trained, weights
from tests.support.lab import Lab, lab

__all__ = ["lab"]

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(600)]


def own_rows(lab: Lab, trial_id: int) -> set[int]:
    """The steps of the rows that the store holds for a trial itself."""
    return {
        report.steps_completed for report in lab.service.reader.metrics.reports_since([trial_id], 0)
    }


@pytest.mark.parametrize("slots", [1, 2])
def test_an_unchanged_fork_ends_with_the_weights_of_its_parent(lab: Lab, slots: int) -> None:
    parent = create(lab, slots=slots)
    expected, trial = weights(lab, parent), finished(lab, parent)
    for at, again in ((10, 0), (13, 3), (4, 4)):  # at a checkpoint, between two, before all
        assert Forks(lab.service).plan(trial.id, at).batches_again == again
        fork = Forks(lab.service).create(trial.id, at)
        assert weights(lab, fork) == expected, lab.account()
        (forked,) = lab.trials(fork)
        assert rows(lab, forked) == rows(lab, trial)
        assert min(own_rows(lab, forked.id)) > at
        batches = [number for number, *_ in trained(lab, fork)]
        if slots == 1:
            assert batches == list(range(at - again, LENGTH))
        assert min(c.steps_completed for c in lab.checkpoints(fork) if c.size) >= at


def test_with_the_default_retention_all_may_have_to_be_trained_again(lab: Lab) -> None:
    parent = create(lab, keeps_all=False)
    expected, trial = weights(lab, parent), finished(lab, parent)
    lab.until(lambda: not lab.service.reader.has_chores())
    start = Forks(lab.service).plan(trial.id, 6)
    assert str(start) == (
        f"A fork of trial {trial.id} at batch 6 starts from the beginning, as no checkpoint of "
        "before has files: 6 batches are trained again."
    )
    fork = Forks(lab.service).create(trial.id, 6)
    assert weights(lab, fork) == expected


def test_a_running_parent_and_a_paused_one_can_be_forked(lab: Lab) -> None:
    gate = lab.folder / "gate"
    wait = f"""
        while (
            batch_idx == 17
            and self.context.get_trial_id() in (1, 3)
            and not os.path.exists({str(gate)!r})
            and not self.context._core.preempt.preempt_requested_locally()
        ):
            time.sleep(0.01)
    """
    parent = create(lab, wait)
    lab.until(lambda: any(c.steps_completed == 15 for c in lab.checkpoints(parent)))
    (trial,) = lab.trials(parent)
    running = Forks(lab.service).create(trial.id, 12)
    first = weights(lab, running)
    gate.touch()
    assert weights(lab, parent) == first
    # Another one, which is paused.
    gate.unlink()
    other = create(lab, wait)
    lab.until(lambda: any(c.steps_completed == 15 for c in lab.checkpoints(other)))
    lab.service.pause(other)  # which the trial waits for
    lab.until(lambda: lab.runs(other)[-1].ended is not None)
    gate.touch()
    (trial,) = lab.trials(other)
    paused = Forks(lab.service).create(trial.id, 16)
    second = weights(lab, paused)
    lab.service.activate(other)
    assert weights(lab, other) == second == first


def test_forks_of_forks_train_as_each_of_their_ancestors_did(lab: Lab) -> None:
    parent = create(lab)
    trial = finished(lab, parent)
    changed = Forks(lab.service).create(trial.id, 7, {"lr": 0.02})
    expected, second = weights(lab, changed), finished(lab, changed)
    again = Forks(lab.service).create(second.id, 17)
    assert weights(lab, again) == expected
    third = finished(lab, again)
    assert rows(lab, third) == rows(lab, second)
    # From a fork whose own checkpoints are gone, its parent's batches are trained first.
    lab.service.delete_experiments([again])
    own = [c.uuid for c in lab.checkpoints(changed) if c.steps_completed < 20 and c.size]
    lab.service.delete_checkpoints(own)
    start = Forks(lab.service).plan(second.id, 9)
    assert (start.steps, start.batches_again) == (5, 4)
    assert weights(lab, Forks(lab.service).create(second.id, 9)) == expected


@pytest.mark.parametrize("at", [10, 12], ids=["at a checkpoint", "between two"])
def test_changes_take_effect_at_the_batch_once_and_nowhere_before(lab: Lab, at: int) -> None:
    parent = create(lab)
    trial = finished(lab, parent)
    fork = Forks(lab.service).create(trial.id, at, {"lr": 0.04, "dropout": 0.6}, name="what if")
    by_hand = f"""
        if batch_idx == {at}:
            group = self.optimizer.param_groups[0]
            group["lr"] = group["lr"] * (0.04 / 0.01)
            self.scheduler.base_lrs, group["initial_lr"] = [0.04], 0.04
            self.dropout.p = 0.6
    """
    expected = create(lab, by_hand)
    assert weights(lab, fork) == weights(lab, expected)
    assert trained(lab, fork)[at % 5 :] == trained(lab, expected)[at:]
    assert trained(lab, fork)[: at % 5] == trained(lab, parent)[at - at % 5 : at]
    found, (forked,) = lab.experiment(fork), lab.trials(fork)
    assert (found.name, found.parent_id) == ("what if", parent)
    assert forked.hparams == {"lr": 0.04, "dropout": 0.6, "global_batch_size": 6}
    assert found.config["searcher"]["name"] == "single"
    lineage = lab.service.reader.forks.fork(forked.id)
    assert lineage is not None
    assert lineage.changed == {"lr": [0.01, 0.04], "dropout": [0.3, 0.6]}


def test_changes_take_effect_on_two_slots_as_if_made_by_hand(lab: Lab) -> None:
    trial = finished(lab, create(lab, slots=2))
    fork = Forks(lab.service).create(trial.id, 12, {"dropout": 0.6})
    expected = create(lab, "self.dropout.p = 0.6 if batch_idx >= 12 else 0.3", slots=2)
    assert weights(lab, fork) == weights(lab, expected)


def test_what_has_no_rule_is_refused_before_anything_trains(lab: Lab) -> None:
    parent = create(lab, hparams={"hidden": 16})
    trial = finished(lab, parent)
    fork = Forks(lab.service).create(trial.id, 12, {"hidden": 8})
    assert lab.wait(fork).state == "ERROR"
    assert trained(lab, fork) == []
    assert "hidden 16 -> 8: the state does not fit" in lab.log(lab.runs(fork)[-1])
    assert lab.checkpoints(fork) == []


def test_another_length_and_seed_count_from_the_batch_on(lab: Lab) -> None:
    parent = create(lab)
    expected, trial = weights(lab, parent), finished(lab, parent)
    fork = Forks(lab.service).create(trial.id, 10, seed=99)
    assert weights(lab, fork) != expected
    (forked,) = lab.trials(fork)
    assert forked.seed == 99
    before, after = rows(lab, trial)["training"], rows(lab, forked)["training"]
    assert [row for row in after if row[0] <= 10] == [row for row in before if row[0] <= 10]
    assert not [row for row in after if row[0] > 10 and row in before]


# Deaths.

# What the script waits at, until it is killed or let go.
PLACES = {
    "base": "batch_idx == 11 and self.hparams['lr'] == 0.01",
    "changed": "batch_idx == 12 and self.hparams['lr'] == 0.04",
    "later": "batch_idx == 17 and self.hparams['lr'] == 0.04",
}


# The short form kills one of the two at each step.
STEPS = ["check", "base", "save", "changed", "later"]
EVERY = 1 if factor() > 1 else 2


@pytest.mark.parametrize(
    ("victim", "steps"), [("trial", STEPS[::EVERY]), ("supervisor", STEPS[EVERY - 1 :: EVERY])]
)
def test_a_fork_that_is_killed_anywhere_ends_the_same(
    lab: Lab, victim: str, steps: list[str]
) -> None:
    marks = lab.folder / "marks"
    marks.mkdir()
    wait = f"""
        import pathlib
        marks = pathlib.Path({str(marks)!r})
        for step, is_there in {{{", ".join(f"{k!r}: {v}" for k, v in PLACES.items())}}}.items():
            if is_there and (marks / step).exists():
                (marks / step).rename(marks / "here")
                while not (marks / "go").exists():
                    time.sleep(0.01)
    """
    trial = finished(lab, create(lab, wait))
    smooth = Forks(lab.service).create(trial.id, 12, {"lr": 0.04})
    expected = weights(lab, smooth)
    rates = {number: rate for number, rate, _ in trained(lab, smooth)}
    for step in steps:
        if step in PLACES:
            (marks / step).touch()
        fork = Forks(lab.service).create(trial.id, 12, {"lr": 0.04})
        lab.until(partial(has_come_to, lab, fork, marks, step))
        if victim == "supervisor":
            lab.kill_supervisor()
        else:
            kill_run(lab, fork)
        (marks / "go").touch()
        assert weights(lab, fork) == expected, (step, lab.account())
        assert {n: rate for n, rate, _ in trained(lab, fork)} == rates
        for mark in marks.iterdir():
            mark.unlink()


def has_come_to(lab: Lab, experiment_id: int, marks: Path, step: str) -> bool:
    """Whether a fork is where it is to be killed."""
    if step == "check":  # as soon as the supervisor has committed the run
        return len(lab.runs(experiment_id)) == 1
    if step == "save":
        return any(c.steps_completed == 12 for c in lab.checkpoints(experiment_id))
    return (marks / "here").exists()


def kill_run(lab: Lab, experiment_id: int) -> None:
    """Kill the processes of the current run, as for lack of memory."""
    folder = lab.runs(experiment_id)[-1].folder
    for process in lab.processes():
        with contextlib.suppress(psutil.Error):
            is_its = process.environ().get("DET_RUN_DIR") == folder
            if is_its and "keeper" not in " ".join(process.cmdline()):
                process.send_signal(signal.SIGKILL)


# Scripts that were started by hand.


def test_a_script_that_was_started_by_hand_can_be_forked(lab: Lab, tmp_path: Path) -> None:
    status, output, errors = tracked.run(lab.home.path, tracked.write(tmp_path, script()))
    assert status == 0, errors
    expected = [line.split()[-1] for line in output.splitlines() if "weights" in line]
    lab.until(lambda: lab.service.has_store and lab.service.reader.trial(1) is not None)
    trial = finished(lab, 1)
    assert [weights(lab, Forks(lab.service).create(trial.id, 13))] == expected
    changed = Forks(lab.service).create(trial.id, 13, {"lr": 0.04})
    finished(lab, changed)
    assert [rate for n, rate, _ in trained(lab, changed) if n == 13][0] == pytest.approx(
        0.04 * 0.95**13
    )
    with pytest.raises(RefusedError, match="has no checkpoint at or before batch 4"):
        Forks(lab.service).create(trial.id, 4)


def test_a_fork_that_was_started_by_hand_is_known_as_one(lab: Lab, tmp_path: Path) -> None:
    text = script().replace('latest_checkpoint="latest"', "fork_from=FORK and (FORK, 13)")
    text = text.replace(
        "info = ", "import sys; FORK = sys.argv[1] if sys.argv[1:] else None; info = "
    )
    file = tracked.write(tmp_path, text)
    assert tracked.run(lab.home.path, file)[0] == 0
    lab.until(lambda: lab.service.has_store and lab.service.reader.trial(1) is not None)
    parent = finished(lab, 1)
    status, output, errors = tracked.run(lab.home.path, file, str(parent.external_id))
    assert status == 0, errors
    lab.until(lambda: lab.service.reader.trial(2) is not None)
    fork = finished(lab, 2)
    lineage = lab.service.reader.forks.fork(fork.id)
    assert lineage is not None
    assert (lineage.parent_trial_id, lineage.at, lineage.changed) == (parent.id, 13, {})
    assert rows(lab, fork) == rows(lab, parent)
    assert min(own_rows(lab, fork.id)) > 13


# What cannot be forked.


def test_a_place_that_is_no_place_to_fork_is_refused(lab: Lab) -> None:
    parent = create(lab)
    trial = finished(lab, parent)
    for at, words in ((0, "from 1 on"), (25, "has trained 24 batches")):
        with pytest.raises(RefusedError, match=words):
            Forks(lab.service).create(trial.id, at)
    with pytest.raises(RefusedError, match="no hyperparameter 'rate'.*dropout, global_batch"):
        Forks(lab.service).create(trial.id, 5, {"rate": 1})
    fork = Forks(lab.service).create(trial.id, 10)
    with pytest.raises(RefusedError, match=f"those of trial {trial.id}: fork that one at batch 9"):
        Forks(lab.service).create(finished(lab, fork).id, 9)


_CORE = """
from determined import core

with core.init() as context:
    for steps in range(1, 4):
        context.train.report_validation_metrics(steps, {"loss": 1.0})
    with context.checkpoint.store_path({"steps_completed": 3}) as (path, _):
        (path / "state").write_text("mine")
"""


def test_a_trial_without_a_trainer_is_refused_before_anything_is_created(lab: Lab) -> None:
    experiment = lab.create(_CORE)
    trial = finished(lab, experiment)
    with pytest.raises(RefusedError, match=r"does not train with pytorch.Trainer"):
        Forks(lab.service).create(trial.id, 2)
    assert lab.service.reader.experiment(experiment + 1) is None


# Deletion.


def test_deleting_the_parent_keeps_what_its_fork_needs(lab: Lab) -> None:
    parent = create(lab)
    expected, trial = weights(lab, parent), finished(lab, parent)
    before = rows(lab, trial)
    fork = Forks(lab.service).create(trial.id, 12)
    (forked,) = lab.trials(fork)
    lab.service.delete_experiments([parent])  # while its fork is on its way
    assert weights(lab, fork) == expected
    left = lab.service.reader.experiment(parent)
    assert left is not None
    assert left.state == "DELETED"
    assert rows(lab, forked) == before
    assert [c.steps_completed for c in lab.checkpoints(parent)] == [10]
    lab.service.delete_experiments([fork])
    lab.until(lambda: lab.service.reader.experiment(parent) is None)
    assert list(lab.home.checkpoints.glob("[!.]*")) == []


def test_a_store_that_is_lost_is_made_anew_with_its_forks(lab: Lab) -> None:
    trial = finished(lab, create(lab))
    fork = Forks(lab.service).create(trial.id, 12, {"lr": 0.04})
    forked = finished(lab, fork)
    before = rows(lab, forked)
    lab.service.close()
    presence.stop(lab.home)
    for file in lab.home.path.glob("store.db*"):
        file.unlink()
    rebuild(lab.home)
    lab.until(lambda: not lab.service.reader.unfinished_runs())  # the supervisor ends the last
    (again,) = lab.trials(fork)
    assert again.hparams == forked.hparams
    assert rows(lab, again) == before
    assert min(own_rows(lab, again.id)) > 12
    lineage = lab.service.reader.forks.fork(again.id)
    assert lineage is not None
    assert (lineage.parent_trial_id, lineage.at) == (trial.id, 12)
