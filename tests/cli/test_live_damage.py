"""A store that is damaged while it is used: each command works, or says what to do about it."""

from __future__ import annotations

import os
import random
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from determined.platform.supervisor import presence
from tests.cli.det import Answer, call_det
from tests.cli.scripts import STEPS
from tests.support import faults
from tests.support.lab import Lab
from tests.support.messages import documented

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(300)]

_PAGE = 4096
_COMMANDS = (
    *("e list", "e describe 1", "e list-trials 1", "e list-checkpoints 1", "e config 1"),
    *("t describe 1", "t logs 1", "c list", "e compare 1", "job list", "m list", "w list"),
    *("e list --json", "e describe 1 --json", "e download-model-def 1", "store df", "p list x"),
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home with one experiment, and no supervisor."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DET_SLOTS", "2")
        lab = Lab(tmp_path_factory.mktemp("damage"))
        lab.wait(lab.create(STEPS, name="whole"))
        lab.close()
        yield lab.home.path


def _spoilt(home: Path, target: Path, *pages: int) -> Path:
    """A copy in whose store pages are overwritten with noise."""
    shutil.copytree(home, target, ignore=shutil.ignore_patterns("wake"))
    content = bytearray((target / "store.db").read_bytes())
    for page in pages:
        noise = random.Random(page).randbytes(_PAGE)
        content[page * _PAGE : (page + 1) * _PAGE] = noise
    (target / "store.db").write_bytes(content)
    return target


def _roots(home: Path) -> list[int]:
    """The first pages of the tables that most commands read."""
    tables = ("experiment", "trial", "run", "checkpoint", "setting")
    connection = sqlite3.connect(home / "store.db")
    query = f"SELECT rootpage FROM sqlite_master WHERE name IN {tables} AND type='table'"
    roots = [page - 1 for (page,) in connection.execute(query)]
    connection.close()
    return roots


def _check(answer: Answer) -> None:
    assert "bug in" not in answer.errors, answer.errors
    assert "Traceback" not in answer.errors, answer.errors
    if " is damaged (" in answer.errors:
        assert answer.code == 1
        assert "nothing of them is lost" in answer.errors
        assert "det store rebuild" in answer.errors


def test_no_command_takes_damage_for_a_bug(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pages, complaints = (home / "store.db").stat().st_size // _PAGE, 0
    others = random.sample(range(1, pages), min(pages - 1, 3 * faults.factor()))
    for page in [*_roots(home), *others]:
        spoilt = _spoilt(home, tmp_path / "spoilt", page)
        for words in _COMMANDS:
            answer = call_det(*words.split(), home=spoilt)
            complaints += " is damaged (" in answer.errors
            print(page, words)  # noqa: T201  # shown if it fails
            _check(answer)
        shutil.rmtree(spoilt)
    assert complaints > 5


def test_damage_is_told_in_one_line(home: Path, tmp_path: Path) -> None:
    spoilt = _spoilt(home, tmp_path / "spoilt", *range(1, 200))
    said = call_det("e", "list", home=spoilt)
    assert said.code == 1
    what = said.errors.partition("(")[2].partition(")")[0]
    documented("pages of the records are overwritten", said.errors, tmp_path / "spoilt", what)
    assert call_det("store", "rebuild", "-y", home=spoilt).code == 0
    assert "whole" in call_det("e", "list", home=spoilt).output


def test_a_command_does_not_wait_for_a_supervisor_that_cannot_read(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("determined.platform.service.supervised_home._STOPPED_AFTER_SECONDS", 0.5)
    lab = Lab(tmp_path)
    _spoilt(home, lab.home.path, *range(6, 200))
    try:
        _check(answer := call_det("e", "label", "add", "1", "x", home=lab.home.path))
        assert answer.code == 1
    finally:
        presence.stop(lab.home)


def test_a_working_directory_that_was_deleted_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    config = "name: x\nentrypoint: x\nsearcher: {name: single, metric: loss}\n"
    det = shlex.join([sys.executable, "-m", "determined.cli", "e", "create", "-", "."])
    done = subprocess.run(
        ["sh", "-c", f"cd {gone} && rmdir {gone} && exec {det}"],
        input=config,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "DET_HOME": str(tmp_path / "home")},
    )
    assert done.returncode == 1
    documented("the working directory was deleted", done.stderr)
