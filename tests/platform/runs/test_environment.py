"""What is recorded when an experiment is created, and what its runs get of it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from determined._info import ClusterInfo
from determined.platform.runs.environment import (
    RecordedEnvironment,
    list_packages,
    load_environment,
    record_environment,
)
from determined.platform.runs.folder import RunFolder
from determined.platform.runs.variables import run_environment, variables_for_device


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=trunk"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("print(1)\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def test_a_record_is_read_back_and_private(tmp_path: Path, repository: Path) -> None:
    variables = {"HOME": "/home/me", "TOKEN": "secret", "DET_ALLOCATION_ID": "x", "RANK": "1"}
    recorded = record_environment(tmp_path, repository, 2, variables=variables)
    assert load_environment(tmp_path) == recorded
    assert (tmp_path / "environment.json").stat().st_mode & 0o777 == 0o600
    assert recorded.interpreter == sys.executable
    assert recorded.threads == 2
    assert recorded.variables == {"HOME": "/home/me", "TOKEN": "secret"}


def test_the_commit_is_recorded_without_changes(tmp_path: Path, repository: Path) -> None:
    state = record_environment(tmp_path, repository, 1).git
    assert state is not None
    assert state.commit == git(repository, "rev-parse", "HEAD")
    assert (state.branch, state.is_changed) == ("trunk", False)
    assert not (tmp_path / "git.diff").exists()


def test_changes_since_the_commit_are_recorded(tmp_path: Path, repository: Path) -> None:
    (repository / "train.py").write_text("print(2)\n")
    state = record_environment(tmp_path, repository, 1).git
    assert state is not None
    assert state.is_changed
    diff = tmp_path / "git.diff"
    assert "-print(1)\n+print(2)\n" in diff.read_text()
    assert diff.stat().st_mode & 0o777 == 0o600


def test_code_outside_of_git_has_no_commit(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    assert record_environment(tmp_path, tmp_path / "plain", 1).git is None
    assert record_environment(tmp_path, None, 1).git is None


def test_packages_are_those_that_can_be_imported() -> None:
    packages = list_packages(sys.executable)
    for name in ("numpy", "pytest", "determined-pytorch"):
        assert f"{name}=={importlib.metadata.version(name)}" in packages
    assert packages == sorted(packages)
    assert list_packages("/no/such/python") == []


def test_of_a_package_that_is_there_twice_the_first_on_the_path_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, version in (("first", "1.9"), ("second", "2.0")):
        (tmp_path / folder / f"twice-{version}.dist-info").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "first"), str(tmp_path / "second")])
    assert list_packages(sys.executable) == ["twice==1.9"]


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


def test_a_record_of_another_version_is_refused(tmp_path: Path) -> None:
    record_environment(tmp_path, None, 1, variables={})
    path = tmp_path / "environment.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 99}))
    with pytest.raises(ValueError, match="was written by another version"):
        load_environment(tmp_path)
