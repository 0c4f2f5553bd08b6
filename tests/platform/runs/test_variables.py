"""The environment variables of a run."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from determined._info import ClusterInfo
from determined.platform.runs.environment import (
    RecordedEnvironment,
)
from determined.platform.runs.folder import RunFolder
from determined.platform.runs.variables import run_environment, variables_for_device


@pytest.fixture
def recorded() -> RecordedEnvironment:
    variables = {"PATH": "/usr/bin:/opt/env/bin", "HOME": "/h", "A": "creator"}
    return RecordedEnvironment("/opt/env/bin/python", variables, 3, ())


def info() -> dict[str, dict[str, Any]]:
    cluster = {
        **{"master_url": "", "cluster_id": "c", "agent_id": "a", "slot_ids": [1], "task_id": "1.r"},
        **{"allocation_id": "1.r.2", "session_token": "", "task_type": "TRIAL"},
    }
    trial = {
        **{"trial_id": 7, "experiment_id": 1, "trial_seed": 5, "hparams": {"lr": 0.1}},
        **{"config": {"name": "x"}, "steps_completed": 10, "trial_run_id": 2, "debug": False},
    }
    return {"cluster": cluster, "trial": trial}


def test_the_creators_interpreter_comes_first(recorded: RecordedEnvironment) -> None:
    environment = run_environment(recorded, RunFolder("/r"), info())
    assert environment["PATH"] == "/opt/env/bin:/usr/bin"
    assert environment["PYTHONUNBUFFERED"] == "1"
    assert environment["HOME"] == "/h"


def test_threads_are_those_of_the_experiment_or_of_the_creator(
    recorded: RecordedEnvironment,
) -> None:
    environment = run_environment(recorded, RunFolder("/r"), info())
    assert environment["OMP_NUM_THREADS"] == "3"
    assert "OMP_NUM_THREADS=3" in environment["DET_SET_VARIABLES"].split()
    mine = RecordedEnvironment("/p", {"OMP_NUM_THREADS": "1"}, 3, ())
    assert run_environment(mine, RunFolder("/r"), info())["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize("where", ["creator", "configuration"])
def test_a_thread_count_that_somebody_chose_holds_for_every_library(where: str) -> None:
    chosen = {"OMP_NUM_THREADS": "1"}
    recorded = RecordedEnvironment("/p", chosen if where == "creator" else {}, 3, ())
    configured = ["OMP_NUM_THREADS=1"] if where == "configuration" else []
    environment = run_environment(recorded, RunFolder("/r"), info(), configured=configured)
    assert {n: v for n, v in environment.items() if n.endswith("_NUM_THREADS")} == chosen
    assert "DET_SET_VARIABLES" not in environment


def test_the_configuration_wins_over_the_creator_and_the_platform_over_both(
    recorded: RecordedEnvironment,
) -> None:
    environment = run_environment(
        recorded,
        RunFolder("/r"),
        info(),
        configured=("A=b=c", "EMPTY", "DET_TASK_ID=mine", "CUDA_VISIBLE_DEVICES=9"),
        devices={"CUDA_VISIBLE_DEVICES": "GPU-aa"},
        ports={"C10D_PORT": "20001"},
    )
    assert (environment["A"], environment["EMPTY"]) == ("b=c", "")
    assert environment["DET_TASK_ID"] == "1.r"
    assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-aa"
    assert environment["C10D_PORT"] == "20001"


def test_cluster_info_can_be_read_from_the_variables(
    recorded: RecordedEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in run_environment(recorded, RunFolder("/r"), info()).items():
        monkeypatch.setenv(name, value)
    read = ClusterInfo._from_env()
    assert (read.task_id, read.allocation_id, read.slot_ids) == ("1.r", "1.r.2", [1])
    assert (read.trial.trial_id, read.trial.hparams) == (7, {"lr": 0.1})


def test_a_variable_that_the_kernel_would_refuse_is_left_out(
    recorded: RecordedEnvironment,
) -> None:
    content = info()
    content["trial"]["config"] = {"x": "y" * 200_000}
    environment = run_environment(recorded, RunFolder("/r"), content)
    assert "DET_EXPERIMENT_CONFIG" not in environment
    subprocess.run([sys.executable, "-c", ""], env={**os.environ, **environment}, check=True)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("cuda", ("B=2", "C=3")), ("rocm", ("B=2", "D=4")), ("cpu", ("A=1",)), ("mps", ("A=1",))],
)
def test_variables_by_device_are_chosen(kind: str, expected: tuple[str, ...]) -> None:
    by_device = {"cpu": ["A=1"], "gpu": ["B=2"], "cuda": ["C=3"], "rocm": ["D=4"]}
    assert variables_for_device(by_device, kind) == expected
    assert variables_for_device(["X=1"], kind) == ("X=1",)
