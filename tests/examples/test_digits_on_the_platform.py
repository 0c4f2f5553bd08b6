"""The configurations of the digits example run as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from determined.config import Completion, load_file
from tests.examples.running import EXAMPLES
from tests.support.lab import Lab, lab

__all__ = ["lab"]
pytestmark = [pytest.mark.slow, pytest.mark.multiprocess, pytest.mark.timeout(300)]


def start(lab: Lab, name: str, *overrides: str) -> int:
    folder = Path(EXAMPLES, "digits")
    storage = {"type": "shared_fs", "host_path": str(lab.home.checkpoints)}
    completion = Completion(created=1, checkpoint_storage=storage)
    loaded = load_file(folder / name, overrides, completion)
    return lab.service.create(loaded, lab.service.take_snapshot(folder), folder)


def test_one_trial_reaches_what_the_script_reaches_alone(lab: Lab) -> None:
    experiment_id = start(lab, "const.yaml", "entrypoint=python3 train.py --epochs 2")
    ended = lab.wait(experiment_id)
    assert ended.state == "COMPLETED", lab.account()
    assert ended.best_validation is not None
    assert ended.best_validation > 0.8


def test_the_search_stops_bad_trials_and_finds_a_good_one(lab: Lab) -> None:
    shorter = ["searcher.max_time=3", "entrypoint=python3 train.py --epochs 3"]
    experiment_id = start(lab, "adaptive.yaml", "searcher.max_trials=4", *shorter)
    ended = lab.wait(experiment_id)
    trials = lab.trials(experiment_id)
    assert (ended.state, len(trials)) == ("COMPLETED", 4), lab.account()
    assert ended.best_validation is not None
    assert ended.best_validation > 0.8
    assert len({trial.hparams["learning_rate"] for trial in trials}) == 4
