"""Runs of other trackers become experiments: whole, once, and whatever is killed in between."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from determined.platform.homes.home import Home
from determined.platform.trackers import importing, tensorboard
from determined.platform.trackers.foreign_run import ForeignRun, Point, plain_value
from determined.platform.trackers.importing import Wishes, import_runs
from determined.store import check, is_made
from tests.cli.det import call_det
from tests.platform.trackers.made import (
    recorded,
    write_tensorboard,
)
from tests.support.workers import run_workers

pytestmark = pytest.mark.multiprocess


def test_the_metric_that_decides_may_be_named_later(home: Home) -> None:
    points = [Point("loss", step, 10.0 + step, 1 / step) for step in (1, 2, 4)]
    run = ForeignRun("a", "run", "p", lambda: points)

    def bring(*wishes: Any) -> tuple[bool, float | None, str]:
        (done,) = import_runs(home, [run], Wishes(None, *wishes))
        told = recorded(home)["run"]
        assert len(told["rows"]) == 3
        return done.has_grown, told["best"], told["rows"][0][0]

    assert bring() == (False, None, "training")
    assert bring("loss") == (True, 0.25, "validation")
    assert bring() == (False, 0.25, "validation")
    assert bring("loss", False) == (True, 1.0, "validation")
    assert bring() == (False, 1.0, "validation")


_EVENTS = ("open", "os.mkdir", "os.rename", "os.remove", "shutil.rmtree", "sqlite3.connect")


def _import_and_die(home: Path, logs: Path, moment: int | str) -> None:
    """Import, and kill this process at a moment: an event by number, or before a step by name."""
    monkeypatch = pytest.MonkeyPatch()

    def die(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if moment == "before the commit":
        write = importing._Written.write

        def write_and_die(*args: Any) -> None:
            write(*args)
            die()

        monkeypatch.setattr(importing._Written, "write", write_and_die)
    elif moment == "after the commit":
        monkeypatch.setattr(importing, "_put_in_place", die)
    else:
        left = [int(moment)]

        def count(event: str, args: tuple[Any, ...]) -> None:
            if event in _EVENTS and str(home) in str(args):
                left[0] -= 1
                if left[0] == 0:
                    die()

        sys.addaudithook(count)
    list(import_runs(Home(home), tensorboard.find_runs(logs)))


def _kill_everywhere(tmp_path: Path, logs: Path) -> int:
    """Kill an import at one moment after the other; return how many there are."""
    whole = Home(tmp_path / "whole")
    list(import_runs(whole, tensorboard.find_runs(logs)))
    expected = {name: told["rows"] for name, told in recorded(whole).items()}
    for number, moment in enumerate(["before the commit", "after the commit", *range(1, 500)]):
        home = Home(tmp_path / f"home-{number}")
        child = os.fork()
        if child == 0:
            _import_and_die(home.path, logs, moment)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        assert status in (0, signal.SIGKILL)
        if is_made(home.path):
            here = {name: told["rows"] for name, told in recorded(home).items()}
            assert here == {name: expected[name] for name in here}, moment
        list(import_runs(home, tensorboard.find_runs(logs)))
        told = recorded(home)
        assert {name: one["rows"] for name, one in told.items()} == expected, moment
        assert check(home.path) == [], moment
        for name, files in (("first", 1), ("keras", 2)):
            folder = home.tensorboard / str(told[name]["id"][1])
            copies = [path for path in folder.rglob("*") if path.is_file()]
            assert len(copies) == files, (moment, name)
        assert list((home.path / "imports").iterdir()) == [], moment
        if status == 0:
            return number
    raise AssertionError("there are moments later than the last one that was tried")


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_nothing_half(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    write_tensorboard(logs)
    (moments,) = run_workers(1, _kill_everywhere, tmp_path, logs, process_group=False)
    assert moments > 30


def test_the_commands_say_what_came_and_what_cannot(home: Home, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    write_tensorboard(logs)

    def det(*words: str) -> tuple[int, str]:
        answer = call_det("import", *words, home=home.path)
        return answer.code, answer.output + answer.errors

    assert det("tensorboard", str(logs)) == (
        0,
        "first is new: here it is experiment 1; 1 points at negative steps are left out.\n"
        "keras is new: here it is experiment 2.\n",
    )
    code, text = det("tensorboard", str(logs), "--json")
    assert (code, [one["is_new"] for one in json.loads(text)]) == (0, [False, False])
    junk = tmp_path / "junk.db"
    junk.write_bytes(b"junk" * 1000)
    (tmp_path / "empty").mkdir()
    for words, sentence in {
        ("tensorboard", str(tmp_path / "none")): "is no folder with event files",
        ("tensorboard", str(tmp_path / "empty")): "There are no event files",
        ("mlflow", str(tmp_path / "none")): "is neither a folder `mlruns` nor",
        ("mlflow", str(tmp_path / "empty")): "is no folder of MLflow",
        ("mlflow", str(junk)): "is no SQLite file of MLflow",
        ("mlflow", f"sqlite:///{tmp_path}/no.db"): "There is no SQLite file",
        ("trackio", str(junk)): "is no project of trackio",
        ("trackio", str(tmp_path / "none")): "There is no",
        ("trackio", str(tmp_path / "empty")): "There is no project of trackio",
    }.items():
        code, text = det(*words)
        assert (code, sentence in text, text.count("\n")) == (1, True, 1), text


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("1e-3", 0.001), ("True", True), ("nan", "nan"), ("adam", "adam"), ("1_0", 10)],
)
def test_parameters_are_what_they_look_like(text: str, value: Any) -> None:
    assert plain_value(text) == value
    assert type(plain_value(text)) is type(value)
