"""What is recorded when an experiment is created, and what its runs get of it."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest

from determined.platform.runs.environment import (
    RecordedEnvironment,
    list_packages,
    load_environment,
    record_environment,
)


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


def test_a_record_of_another_version_is_refused(tmp_path: Path) -> None:
    record_environment(tmp_path, None, 1, variables={})
    path = tmp_path / "environment.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 99}))
    with pytest.raises(ValueError, match="was written by another version"):
        load_environment(tmp_path)
