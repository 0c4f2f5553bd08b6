"""Searches on the platform, on real processes: what was recorded is what happened."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from determined.platform.service import RefusedError
from tests.support.lab import Lab
from tests.support.searches import (
    SPACE,
    UNTIL_ASKED,
    actions,
    check_replay,
    curve,
    custom,
    events,
    searcher,
    states,
)

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]


def test_random_replaces_a_trial_with_invalid_hyperparameters(lab: Lab) -> None:
    first = "if info.trial.trial_id == 2: raise det.InvalidHP('too large')"
    settings = searcher("random", max_trials=5, max_concurrent_trials=2)
    ended = lab.wait(lab.create(curve(first=first), searcher=settings, hyperparameters=SPACE))
    trials = lab.trials(ended.id)
    assert (ended.state, ended.progress, len(trials)) == ("COMPLETED", 1.0, 6)
    assert trials[1].reason == "invalid hyperparameters"
    assert [trial.total_batches for trial in trials].count(4) == 5
    check_replay(lab, ended.id)


def test_grid_visits_every_point_from_the_end(lab: Lab) -> None:
    space = {
        "quality": {"type": "double", "minval": 0.0, "maxval": 1.0, "count": 3},
        "kind": {"type": "categorical", "vals": ["a", "b"]},
    }
    ended = lab.wait(
        lab.create(
            curve(epochs=1),
            searcher=searcher("grid", max_concurrent_trials=2),
            hyperparameters=space,
        )
    )
    assert [(t.hparams["kind"], t.hparams["quality"]) for t in lab.trials(ended.id)] == [
        ("b", 1.0),
        ("b", 0.5),
        ("b", 0.0),
        ("a", 1.0),
        ("a", 0.5),
        ("a", 0.0),
    ]
    check_replay(lab, ended.id)


def test_a_grid_with_a_point_twice_is_refused_and_leaves_nothing(lab: Lab) -> None:
    space = {"quality": {"type": "categorical", "vals": [1, 1]}}
    with pytest.raises(Exception, match="quality"):
        lab.create(curve(), searcher=searcher("grid"), hyperparameters=space)


def test_a_stop_reaches_a_trial_soon(lab: Lab) -> None:
    """The first to reach the rung goes on; the worse one hears it long before its end."""
    settings = searcher("async_halving", max_trials=2, num_rungs=2, max_time=400)
    settings["max_concurrent_trials"] = 2
    metrics = '{"loss": info.trial.trial_id, "epochs": epoch * 100}'
    script = curve(epochs=400, seconds=0.02, metrics=metrics)
    ended = lab.wait(lab.create(script, searcher=settings, hyperparameters=SPACE))
    stopped = [t for t in lab.trials(ended.id) if t.reason.startswith("stopped at")]
    assert len(stopped) <= 1
    for trial in lab.trials(ended.id):
        assert trial.state == "COMPLETED", lab.account()
        assert trial.total_batches < 100
        assert [c.trial_id for c in lab.checkpoints(ended.id)].count(trial.id) >= 1
    check_replay(lab, ended.id)


def test_an_adaptive_search_ends_with_all_its_trials(lab: Lab) -> None:
    settings = searcher("adaptive_asha", max_trials=10, max_concurrent_trials=4)
    ended = lab.wait(lab.create(curve(), searcher=settings, hyperparameters=SPACE))
    trials = lab.trials(ended.id)
    assert (ended.state, len(trials)) == ("COMPLETED", 10)
    assert len({trial.seed for trial in trials}) == 10
    assert [action["trial_seed"] for action in actions(lab, ended.id, "create")] == [
        trial.seed for trial in trials
    ]
    assert any(trial.reason.startswith("stopped at") for trial in trials)
    check_replay(lab, ended.id)


def test_promotion_on_one_slot_survives_the_loss_of_everything(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_SLOTS", "1")
    settings = searcher(
        "async_halving", max_trials=6, num_rungs=2, stop_once=False, max_concurrent_trials=1
    )
    # The first is paused, and soon too bad to be promoted; the second goes on at once.
    metrics = '{"loss": [5, 1, 2, 6, 3, 4][info.trial.trial_id - 1], "epochs": epoch}'
    experiment_id = lab.create(
        curve(metrics=metrics, each=UNTIL_ASKED % 2),
        searcher=settings,
        hyperparameters=SPACE,
        checkpoint_storage={"save_trial_best": 0, "save_trial_latest": 0},
    )
    lab.until(lambda: "trial_paused" in events(lab, experiment_id))
    paused = actions(lab, experiment_id, "pause")[0]["request_id"]
    _kill_everything(lab)
    ended = lab.wait(experiment_id)
    trials = {trial.request_id: trial for trial in lab.trials(experiment_id)}
    assert (ended.state, len(trials)) == ("COMPLETED", 6)
    promoted = [action["request_id"] for action in actions(lab, experiment_id, "resume")]
    assert [trials[request_id].id for request_id in promoted] == [3, 5]
    for request_id in promoted:
        runs = lab.service.reader.runs(trials[request_id].id)
        assert runs[-1].steps_completed == 2  # resumed where the rung is
        assert trials[request_id].total_batches == 4
    assert states(lab.trials(experiment_id)) == ["COMPLETED"] * 6
    replayed = check_replay(lab, experiment_id)
    assert all(trial.exited for trial in replayed.state.trials)
    (freed,) = actions(lab, experiment_id, "free_checkpoints")
    assert freed["request_id"] == paused
    rank = "rank 4 of 5, and at most 3 can continue"
    assert trials[paused].reason == f"can no longer be promoted from 2 epochs: {rank}"
    lab.until(lambda: not any(c.state == "COMPLETED" for c in lab.checkpoints(experiment_id)))


def _kill_everything(lab: Lab) -> None:
    lab.kill_supervisor()
    for process in lab.processes():
        try:
            os.kill(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def test_a_trial_without_the_metric_fails_alone(lab: Lab) -> None:
    metrics = (
        '{"loss": 1 - quality, "epochs": epoch} if info.trial.trial_id != 2 '
        'else {"lost": 1.0, "epochs": epoch}'
    )
    settings = searcher("adaptive_asha", max_trials=4, max_concurrent_trials=2)
    ended = lab.wait(lab.create(curve(metrics=metrics), searcher=settings, hyperparameters=SPACE))
    trials = lab.trials(ended.id)
    assert ended.state == "COMPLETED"
    assert [trial.id for trial in trials if trial.state == "ERROR"] == [2]
    assert "loss" in trials[1].reason
    assert "the reported metrics are `epochs`, `lost`" in trials[1].reason
    told = [s.event["event"] for s in lab.service.reader.search_steps(ended.id)]
    of_it = [t["kind"] for t in told if t.get("request_id") == trials[1].request_id]
    assert of_it[-2:] == ["trial_exited_early", "trial_exited"]
    check_replay(lab, ended.id)


def test_a_metric_that_is_not_a_number_survives_in_the_record(lab: Lab) -> None:
    metrics = '{"loss": float("nan"), "epochs": epoch}'
    settings = searcher("async_halving", max_trials=2, num_rungs=2)
    ended = lab.wait(lab.create(curve(metrics=metrics), searcher=settings, hyperparameters=SPACE))
    assert (ended.state, ended.reason) == ("ERROR", "all 2 trials failed")
    steps = lab.service.reader.search_steps(ended.id)
    values = [s.event["event"]["metrics"]["loss"] for s in steps if "metrics" in s.event["event"]]
    assert values
    assert all(math.isnan(value) for value in values)
    check_replay(lab, ended.id)


def test_the_same_traceback_three_times_pauses_the_experiment(lab: Lab) -> None:
    settings = searcher("random", max_trials=8, max_concurrent_trials=1)
    experiment_id = lab.create(
        "raise ValueError('no data')", searcher=settings, hyperparameters=SPACE
    )
    lab.until(lambda: lab.experiment(experiment_id).state == "PAUSED")
    assert "same traceback before any progress" in lab.experiment(experiment_id).reason
    assert states(lab.trials(experiment_id)) == ["ERROR"] * 3 + ["PAUSED"]
    lab.service.kill(experiment_id)
    assert lab.wait(experiment_id).state == "CANCELED"


def test_canceling_ends_paused_trials_too(lab: Lab) -> None:
    settings = searcher(
        "async_halving", max_trials=8, num_rungs=2, stop_once=False, max_concurrent_trials=2
    )
    experiment_id = lab.create(curve(seconds=0.05), searcher=settings, hyperparameters=SPACE)
    lab.until(lambda: actions(lab, experiment_id, "pause"))
    lab.service.cancel(experiment_id)
    assert lab.wait(experiment_id).state == "CANCELED"
    assert set(states(lab.trials(experiment_id))) <= {"CANCELED", "COMPLETED"}
    check_replay(lab, experiment_id)
    assert len(actions(lab, experiment_id, "create")) == len(lab.trials(experiment_id))


@pytest.mark.parametrize("sampler", ["auto", "tpe"])
def test_a_model_proposes_and_is_asked_in_a_process_of_its_own(lab: Lab, sampler: str) -> None:
    settings = searcher("random", max_trials=18, max_concurrent_trials=2, sampler=sampler)
    experiment_id = lab.create(curve(epochs=1), searcher=settings, hyperparameters=SPACE)
    lab.until(lambda: len(lab.trials(experiment_id)) >= 8)
    lab.kill_supervisor()
    ended = lab.wait(experiment_id)
    created = actions(lab, experiment_id, "create")
    assert (ended.state, len(created), len(lab.trials(experiment_id))) == ("COMPLETED", 18, 18)
    assert any(f"proposed by {sampler}" in action["reason"] for action in created)
    assert not any("failed" in action["reason"] for action in created)
    check_replay(lab, experiment_id)
    lab.until(lambda: not _models_of(lab))


@pytest.mark.parametrize(
    ("sampler", "max_trials", "told"),
    [("gp", 14, "by gp from"), ("cmaes", 14, "by cmaes from"), ("qmc", 3, "point 3 of a qmc")],
)
def test_every_sampler_runs_on_the_platform(
    lab: Lab, sampler: str, max_trials: int, told: str
) -> None:
    pytest.importorskip("optuna")
    settings = searcher("random", max_trials=max_trials, max_concurrent_trials=2, sampler=sampler)
    space = {**SPACE, "width": {"type": "int", "minval": 1, "maxval": 64}}
    ended = lab.wait(lab.create(curve(epochs=1), searcher=settings, hyperparameters=space))
    reasons = [action["reason"] for action in actions(lab, ended.id, "create")]
    assert (ended.state, len(reasons)) == ("COMPLETED", max_trials)
    assert any(told in reason for reason in reasons), reasons
    assert not any("failed" in reason for reason in reasons), reasons
    check_replay(lab, ended.id)
    lab.until(lambda: not _models_of(lab))


def _models_of(lab: Lab) -> list[psutil.Process]:
    """Processes of models, without those whose supervisor has another home."""
    return [p for p in _helpers("model_child") if not _is_foreign(lab, p)]


def _is_foreign(lab: Lab, process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        parent = process.parent()
        words = " ".join(parent.cmdline()) if parent else ""
        return "supervisor" in words and str(lab.home.path) not in words
    return False


def _helpers(name: str) -> list[psutil.Process]:
    """All processes of models or methods on this machine."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        if f"determined.platform.search.processes.{name}" in (process.info["cmdline"] or []):
            found.append(process)
    return [p for p in found if p.info["status"] != psutil.STATUS_ZOMBIE]


def test_a_missing_package_is_told_at_creation(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\n"
        "real = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'optuna' else real(name, *a)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    settings = searcher("random", max_trials=2, sampler="tpe")
    with pytest.raises(RefusedError, match=r"pip install 'determined-pytorch\[optuna\]'"):
        lab.create(curve(), searcher=settings, hyperparameters=SPACE)


def test_a_method_of_ones_own_runs_and_is_restored(lab: Lab) -> None:
    experiment_id = custom(lab, "Climb")
    for count in (3, 4):
        _wait_for_trials(lab, experiment_id, count)
        lab.kill_supervisor()
    lab.until(lambda: _helpers_of(lab, experiment_id) or _is_over(lab, experiment_id))
    for process in _helpers_of(lab, experiment_id):
        process.kill()
    ended = lab.wait(experiment_id)
    assert (ended.state, len(lab.trials(experiment_id))) == ("COMPLETED", 5), ended.reason
    stops = actions(lab, experiment_id, "stop")  # a trial may be quicker, while nobody is there
    assert {action["reason"] for action in stops} == {"three are enough"}
    log = lab.home.experiment(experiment_id) / "search" / "log"
    assert "the method starts" in log.read_text()
    check_replay(lab, experiment_id)
    lab.until(lambda: not _helpers_of(lab, experiment_id))


def _wait_for_trials(lab: Lab, experiment_id: int, count: int) -> None:
    lab.until(lambda: len(lab.trials(experiment_id)) >= count)


def _is_over(lab: Lab, experiment_id: int) -> bool:
    return lab.experiment(experiment_id).state == "COMPLETED"


def _helpers_of(lab: Lab, experiment_id: int) -> list[psutil.Process]:
    code = str(lab.home.experiment(experiment_id) / "search" / "code")
    found = []
    for process in _helpers("custom_child"):
        try:
            if process.cwd().startswith(code):
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_the_exception_of_a_method_ends_its_experiment(lab: Lab) -> None:
    ended = lab.wait(custom(lab, "Broken"))
    assert ended.state == "ERROR"
    assert "my_search.py" in ended.reason
    assert "RuntimeError: I cannot read this" in ended.reason
    assert set(states(lab.trials(ended.id))) == {"CANCELED"}
    assert not lab.service.reader.unfinished_runs()
    lab.until(lambda: not _helpers_of(lab, ended.id))


def test_a_method_that_thinks_long_holds_nobody_up(lab: Lab) -> None:
    stuck = custom(lab, "Stuck")
    lab.until(lambda: lab.trials(stuck) and lab.trials(stuck)[0].total_batches > 1)
    other = lab.wait(lab.create(curve(), hyperparameters={"quality": 0.5}))
    assert other.state == "COMPLETED"
    (helper,) = _helpers_of(lab, stuck)
    lab.kill_supervisor()
    helper.wait(30)  # although it is busy
    lab.service.kill(stuck)
    lab.until(lambda: not lab.service.reader.unfinished_runs())
    lab.until(lambda: _helpers_of(lab, stuck))
    _helpers_of(lab, stuck)[0].kill()  # started again, and stuck again
    time.sleep(0.1)
