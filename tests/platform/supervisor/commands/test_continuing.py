"""Finished experiments that go on, on real processes."""

from __future__ import annotations

from typing import Any

import pytest

from determined.errors import ConfigurationError
from determined.platform.service import NotFoundError, RefusedError
from tests.support.lab import Lab
from tests.support.searches import (
    SPACE,
    actions,
    check_replay,
    curve,
    custom,
    searcher,
    states,
)

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]


def test_a_single_trial_trains_longer_from_its_checkpoint(lab: Lab) -> None:
    first = lab.wait(lab.create(curve(), hyperparameters={"quality": 0.5}))
    lab.service.continue_experiment(
        first.id, max_length=9, overrides=["hyperparameters.quality=0.75", "max_restarts=2"]
    )
    ended = lab.wait(first.id)
    (trial,) = lab.trials(first.id)
    assert (ended.state, ended.progress, trial.total_batches) == ("COMPLETED", 1.0, 9)
    assert trial.hparams == {"quality": 0.75}
    assert [run.steps_completed for run in lab.runs(first.id)] == [0, 4]
    assert ended.config["searcher"]["max_length"] == 9
    assert ended.config["max_restarts"] == 2
    check_replay(lab, first.id)
    lab.service.continue_experiment(first.id)  # a single one runs again without any reason
    assert lab.wait(first.id).state == "COMPLETED"
    assert len(lab.runs(first.id)) == 3


def test_a_finished_random_search_tries_more(lab: Lab) -> None:
    settings = searcher("random", max_trials=2)
    first = lab.wait(lab.create(curve(), searcher=settings, hyperparameters=SPACE))
    with pytest.raises(
        RefusedError, match="has nothing to continue: all 2 trials that it asks for"
    ):
        lab.service.continue_experiment(first.id)
    with pytest.raises(RefusedError, match="can only be raised"):
        lab.service.continue_experiment(first.id, max_trials=1)
    with pytest.raises(RefusedError, match="max_time: a random search does not have this limit"):
        lab.service.continue_experiment(first.id, max_time=9)
    with pytest.raises(RefusedError, match="keeps its configuration"):
        lab.service.continue_experiment(first.id, overrides=["max_restarts=2"])
    assert lab.experiment(first.id).state == "COMPLETED"
    lab.service.continue_experiment(first.id, max_trials=4)
    ended = lab.wait(first.id)
    assert (ended.state, len(lab.trials(first.id)), len(lab.runs(first.id))) == ("COMPLETED", 4, 4)
    assert ended.config["searcher"]["max_trials"] == 4
    lab.service.continue_experiment(first.id, max_length=6)
    ended = lab.wait(first.id)
    assert [trial.total_batches for trial in lab.trials(first.id)] == [6] * 4
    check_replay(lab, first.id)


def test_a_finished_adaptive_search_goes_on_also_after_a_crash(lab: Lab) -> None:
    settings = searcher("adaptive_asha", max_trials=6, max_concurrent_trials=2)
    first = lab.wait(
        lab.create(curve(epochs=16, seconds=0.05), searcher=settings, hyperparameters=SPACE)
    )
    lab.service.continue_experiment(first.id, max_trials=10, max_time=8)
    lab.kill_supervisor()
    ended = lab.wait(first.id)
    assert (ended.state, len(lab.trials(first.id))) == ("COMPLETED", 10)
    assert max(trial.total_batches for trial in lab.trials(first.id)) >= 8
    assert any("promoted from 4 epochs" in a["reason"] for a in actions(lab, first.id, "resume"))
    assert (ended.config["searcher"]["max_trials"], ended.config["searcher"]["max_time"]) == (10, 8)
    assert all(trial.state == "COMPLETED" for trial in lab.trials(first.id))
    check_replay(lab, first.id)


def test_failed_trials_run_again_unless_told_otherwise(lab: Lab) -> None:
    first = "import os, pathlib\n    marker = pathlib.Path(%r)\n    "
    first += "assert marker.exists() or info.trial.trial_id == 1, 'no data'"
    marker = lab.folder / "data"
    settings = searcher("async_halving", max_trials=2, num_rungs=2)
    ended = lab.wait(
        lab.create(curve(first=first % str(marker)), searcher=settings, hyperparameters=SPACE)
    )
    assert sorted(states(lab.trials(ended.id))) == ["COMPLETED", "ERROR"]
    with pytest.raises(RefusedError, match="leave out --no-rerun-failed: 1 did not finish"):
        lab.service.continue_experiment(ended.id, rerun_failed=False)
    marker.touch()
    lab.service.continue_experiment(ended.id)
    ended = lab.wait(ended.id)
    assert states(lab.trials(ended.id)) == ["COMPLETED"] * 2
    assert [len(lab.service.reader.runs(t.id)) for t in lab.trials(ended.id)] == [1, 2]
    check_replay(lab, ended.id)


def test_a_search_that_has_paused_itself_is_taken_up(lab: Lab) -> None:
    marker = lab.folder / "data"
    first = f"import pathlib\n    assert pathlib.Path({str(marker)!r}).exists(), 'no data'"
    settings = searcher("random", max_trials=5, max_concurrent_trials=1)
    held = lab.create(curve(first=first), searcher=settings, hyperparameters=SPACE)
    lab.until(lambda: lab.experiment(held).state == "PAUSED")
    assert states(lab.trials(held)) == ["ERROR"] * 3 + ["PAUSED"]
    marker.touch()
    lab.service.continue_experiment(held, max_trials=6)
    ended = lab.wait(held)
    assert (ended.state, ended.reason) == ("COMPLETED", "all 6 trials ended")
    assert states(lab.trials(held)) == ["COMPLETED"] * 6
    assert [len(lab.service.reader.runs(t.id)) for t in lab.trials(held)] == [2] * 3 + [1] * 3
    check_replay(lab, held)


def test_a_pause_that_somebody_asked_for_is_not_continued(lab: Lab) -> None:
    number = lab.create(curve(), paused=True)
    with pytest.raises(RefusedError, match=f"`det experiment activate {number}` resumes it"):
        lab.service.continue_experiment(number)
    lab.service.kill(number)


def test_a_canceled_search_is_taken_up_where_it_was(lab: Lab) -> None:
    settings = searcher("random", max_trials=4, max_concurrent_trials=2)
    experiment_id = lab.create(
        curve(epochs=30, seconds=0.02), searcher=settings, hyperparameters=SPACE
    )
    lab.until(lambda: any(t.total_batches > 3 for t in lab.trials(experiment_id)))
    lab.service.cancel(experiment_id)
    assert lab.wait(experiment_id).state == "CANCELED"
    lab.service.continue_experiment(experiment_id)
    ended = lab.wait(experiment_id)
    assert (ended.state, len(lab.trials(experiment_id))) == ("COMPLETED", 4)
    assert [trial.total_batches for trial in lab.trials(experiment_id)] == [30] * 4, lab.account()
    assert any(run.steps_completed > 3 for run in lab.runs(experiment_id))
    check_replay(lab, experiment_id)


def test_a_method_of_ones_own_hears_of_it(lab: Lab) -> None:
    ended = lab.wait(custom(lab, "Climb"))
    lab.service.continue_experiment(ended.id, max_trials=7)
    assert lab.wait(ended.id).state == "COMPLETED"
    reason = actions(lab, ended.id, "resume")[0]["reason"]
    assert reason == "{'max_trials': 7, 'rerun_failed': True}"
    broken = lab.wait(custom(lab, "Broken"))
    with pytest.raises(RefusedError, match="its search method failed"):
        lab.service.continue_experiment(broken.id)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"overrides": ["searcher.name=random", "searcher.max_trials=2"]}, "cannot become"),
        ({"overrides": ["workspace=other"]}, "cannot be moved by continuing it"),
        ({"max_trials": 3}, "a single search does not have this limit"),
    ],
)
def test_what_continuing_cannot_change_is_refused(
    lab: Lab, options: dict[str, Any], message: str
) -> None:
    ended = lab.wait(lab.create("pass"))
    with pytest.raises(RefusedError, match=message):
        lab.service.continue_experiment(ended.id, **options)
    with pytest.raises(ConfigurationError, match="max_restarts"):
        lab.service.continue_experiment(ended.id, overrides=["max_restarts=many"])
    with pytest.raises(NotFoundError, match="There is no experiment 99"):
        lab.service.continue_experiment(99)
    assert lab.experiment(ended.id).state == "COMPLETED"


def test_an_experiment_at_work_cannot_be_continued(lab: Lab) -> None:
    experiment_id = lab.create("pass", paused=True)
    with pytest.raises(
        RefusedError, match="is PAUSED: only an experiment that has ended can be continued"
    ):
        lab.service.continue_experiment(experiment_id)
    lab.service.kill(experiment_id)
    assert lab.wait(experiment_id).state == "CANCELED"
