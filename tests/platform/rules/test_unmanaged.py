"""The configuration and the state of experiments that the platform did not start."""

from __future__ import annotations

from typing import Any

import pytest

from determined.journal import Introduction
from determined.platform.rules.states import State
from determined.platform.rules.unmanaged import config_of, has_no_meaning, state_of


def introduction(**changes: Any) -> Introduction:
    values: dict[str, Any] = {
        "name": "train.py",
        "command": ["python", "train.py", "--name", "a b"],
        "folder": "/work",
        "owner": "me",
        "host": "here",
        "boot_id": "",
        "pid": 1,
        "storage": {"type": "shared_fs", "host_path": "/data"},
    }
    return Introduction(**{**values, **changes})


def test_a_script_gets_a_whole_configuration() -> None:
    config = config_of(introduction(metric="accuracy", smaller_is_better=False, seed=3))
    assert (config["name"], config["entrypoint"]) == ("train.py", "python train.py --name 'a b'")
    assert config["searcher"]["metric"] == "accuracy"
    assert config["searcher"]["smaller_is_better"] is False
    assert config["reproducibility"]["experiment_seed"] == 3
    assert config["checkpoint_storage"]["host_path"] == "/data"
    assert config["resources"]["slots_per_trial"] == 1


def test_hyperparameters_are_what_the_script_says_however_they_look() -> None:
    odd = {"type": "int", "net": {"type": "categorical", "vals": []}, "nan": float("inf")}
    assert config_of(introduction(hparams=odd))["hyperparameters"] == odd


def test_no_policy_ever_deletes_checkpoints_of_a_script() -> None:
    assert config_of(introduction())["checkpoint_storage"]["save_trial_latest"] >= 1_000_000


@pytest.mark.parametrize(
    "changes",
    [
        {"storage": {}},
        {"storage": {"type": "s3"}},
        {"seed": -5},
        {"command": []},
        {"project": "/", "labels": ["", "\ud800"], "description": "x" * 100_000},
    ],
)
def test_what_only_the_script_understands_is_no_reason_to_lose_it(changes: dict[str, Any]) -> None:
    assert config_of(introduction(**changes))["name"] == "train.py"


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["COMPLETED"], State.COMPLETED),
        (["COMPLETED", "ACTIVE", "ERROR"], State.ACTIVE),
        (["COMPLETED", "ERROR", "CANCELED"], State.ERROR),
        (["COMPLETED", "CANCELED"], State.CANCELED),
        ([], State.COMPLETED),
    ],
)
def test_an_experiment_is_in_the_worst_state_of_its_trials(
    states: list[str], expected: State
) -> None:
    assert state_of(states) is expected


def test_a_verb_without_meaning_is_refused_with_a_reason() -> None:
    assert "experiment 3 is unmanaged" in has_no_meaning("pause", "experiment 3")
