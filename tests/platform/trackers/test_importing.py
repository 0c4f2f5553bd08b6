"""Runs of other trackers become experiments: whole, once, and whatever is killed in between."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from determined.errors import DeterminedError, RefusedError
from determined.platform.homes.home import Home
from determined.platform.trackers import importing, mlflow, tensorboard, trackio
from determined.platform.trackers.foreign_run import ForeignRun, Point, plain_value
from determined.platform.trackers.importing import Wishes, import_runs
from determined.store import Reader, TrialFilter, check, is_made
from tests.cli.det import call_det
from tests.platform.trackers.made import (
    mlflow_server,
    write_mlflow,
    write_tensorboard,
    write_trackio,
)
from tests.support.workers import run_workers

pytestmark = pytest.mark.multiprocess


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def _told(home: Home) -> dict[str, dict[str, Any]]:
    """What is recorded, by the name of the experiment."""
    reader = Reader(home.path)
    try:
        projects = {project.id: project for project in reader.registry.projects()}
        workspaces = {one.id: one.name for one in reader.registry.workspaces()}
        found = {}
        for experiment in reader.experiments().rows:
            (trial,) = reader.trials(TrialFilter(experiment_id=experiment.id)).rows
            project = projects[experiment.project_id]
            assert (experiment.state, experiment.started) == (trial.state, trial.started)
            assert [run.ended is None for run in reader.runs(trial.id)].count(True) == 0
            found[experiment.name] = {
                "id": (experiment.id, trial.id),
                "project": f"{workspaces[project.workspace_id]}/{project.name}",
                "about": (experiment.owner, experiment.description, experiment.labels),
                "hparams": trial.hparams,
                "metadata": trial.metadata,
                "state": experiment.state,
                "reason": experiment.reason,
                "times": (experiment.started, experiment.ended),
                "best": experiment.best_validation,
                "rows": [
                    (r.group, r.steps_completed, r.time, r.metrics)
                    for r in reader.metrics.reports(trial.id)
                ],
            }
        return found
    finally:
        reader.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of mlflow, whose tables use what SQLAlchemy deprecates
@pytest.mark.parametrize("kind", ["folder", "database", "server"])
def test_runs_of_mlflow_come_with_all_that_is_known_of_them(
    kind: str, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closing: ExitStack
) -> None:
    uri = str(tmp_path / "mlruns") if kind == "folder" else f"sqlite:///{tmp_path}/mlflow.db"
    client = write_mlflow(uri, monkeypatch)
    if kind == "server":
        pytest.importorskip("flask", reason="MLflow's server needs it")
        uri = closing.enter_context(mlflow_server(uri, tmp_path))
    wishes = Wishes(metric="val/loss")
    done = list(import_runs(home, mlflow.find_runs(uri), wishes))
    assert [(run.is_new, run.has_grown) for run in done] == [(True, False)] * 2
    told = _told(home)
    as_text = str(told)  # NaN is not equal to itself
    assert set(told) == {"first", "open"}
    first = told["first"]
    assert first["project"] == "mlflow/vision"
    assert first["about"][1:] == ("a note", ["team=a"])
    assert first["hparams"] == {"lr": 0.1, "layers": 3, "name": "adam", "amp": True}
    assert first["metadata"]["tags"] == {"team": "a"}
    assert (first["state"], first["times"], first["best"]) == ("ERROR", (1000, 1010), 2 / 3)
    rows = {(group, step): metrics for group, step, _, metrics in first["rows"]}
    assert math.isnan(rows["training", 0].pop("bad"))
    assert rows == {
        ("training", 0): {"loss": 1.0},
        ("training", 1): {"loss": 0.5},
        ("training", 2): {"loss": 7.0},
        ("validation", 0): {"val/loss": 2.0},
        ("validation", 1): {"val/loss": 1.0},
        ("validation", 2): {"val/loss": 2 / 3},
    }
    assert (told["open"]["state"], told["open"]["rows"]) == ("CANCELED", [])
    assert "had not ended" in told["open"]["reason"]

    again = list(import_runs(home, mlflow.find_runs(uri), wishes))
    assert [(run.is_new, run.has_grown) for run in again] == [(False, False)] * 2
    assert str(_told(home)) == as_text
    (experiment,) = [e for e in client.search_experiments() if e.name == "text"]
    (run,) = client.search_runs([experiment.experiment_id])
    client.log_metric(run.info.run_id, "loss", 0.5, 2_001_000, 0)
    client.set_terminated(run.info.run_id, "FINISHED", 2_002_000)
    grown = {run.name: run.has_grown for run in import_runs(home, mlflow.find_runs(uri), wishes)}
    assert grown == {"first": False, "open": True}
    told = _told(home)
    assert (told["open"]["state"], told["open"]["reason"]) == ("COMPLETED", "")
    assert told["open"]["rows"] == [("training", 0, 2001.0, {"loss": 0.5})]
    assert check(home.path) == []


def test_folders_of_tensorboard_are_runs_and_grow(home: Home, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    write_tensorboard(logs)
    done = list(import_runs(home, tensorboard.find_runs(logs), Wishes(project="a/b")))
    assert [(run.name, run.num_left_out) for run in done] == [("first", 1), ("keras", 0)]
    told = _told(home)
    assert told["keras"]["rows"] == [
        ("training", 1, 2000, {"epoch_loss": 0.5}),
        ("validation", 1, 2000, {"epoch_loss": 0.25}),
    ]
    assert told["first"]["project"] == "a/b"
    assert told["first"]["times"][0] == 1000
    assert [row[:2] for row in told["first"]["rows"]][:2] == [("training", 0), ("validation", 0)]
    trial = told["keras"]["id"][1]
    for part in ("train", "validation"):
        (copy,) = (home.tensorboard / str(trial) / part).iterdir()
        assert copy.read_bytes() == (logs / "keras" / part / copy.name).read_bytes()
    write_tensorboard(logs, steps=6)  # each writer adds a file
    done = list(import_runs(home, tensorboard.find_runs(logs)))
    assert [(run.is_new, run.has_grown) for run in done] == [(False, True), (False, False)]
    told = _told(home)
    assert len(told["first"]["rows"]) == 12
    assert len(list((home.tensorboard / str(told["first"]["id"][1])).iterdir())) == 2
    assert list((home.path / "imports").iterdir()) == []


def test_projects_of_trackio(home: Home, tmp_path: Path) -> None:
    write_trackio(tmp_path / "mine.db")
    for _ in range(2):
        (run,) = import_runs(home, trackio.find_runs(tmp_path), Wishes(metric="train/loss"))
    assert not run.is_new
    told = _told(home)["calm-cat"]
    assert (told["project"], told["hparams"]) == ("trackio/mine", {"lr": 0.1})
    assert (told["about"], told["best"]) == (("ada", "", ["g"]), 0.5)
    assert told["rows"] == [
        ("validation", 0, 0, {"train/loss": 1, "val/loss": 0}),
        ("validation", 1, 60, {"train/loss": 0.5, "val/loss": 1}),
    ]


def test_the_metric_that_decides_may_be_named_later(home: Home) -> None:
    points = [Point("loss", step, 10.0 + step, 1 / step) for step in (1, 2, 4)]
    run = ForeignRun("a", "run", "p", lambda: points)

    def bring(*wishes: Any) -> tuple[bool, float | None, str]:
        (done,) = import_runs(home, [run], Wishes(None, *wishes))
        told = _told(home)["run"]
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
    expected = {name: told["rows"] for name, told in _told(whole).items()}
    for number, moment in enumerate(["before the commit", "after the commit", *range(1, 500)]):
        home = Home(tmp_path / f"home-{number}")
        child = os.fork()
        if child == 0:
            _import_and_die(home.path, logs, moment)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        assert status in (0, signal.SIGKILL)
        if is_made(home.path):
            here = {name: told["rows"] for name, told in _told(home).items()}
            assert here == {name: expected[name] for name in here}, moment
        list(import_runs(home, tensorboard.find_runs(logs)))
        told = _told(home)
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


def test_damaged_folders_of_mlflow_bring_what_can_be_read(home: Home, tmp_path: Path) -> None:
    run = tmp_path / "mlruns" / "1" / "abc"
    (run / "metrics" / "train").mkdir(parents=True)
    (tmp_path / "mlruns" / "1" / "meta.yaml").write_text("experiment_id: '1'\nname: e\n")
    (tmp_path / "mlruns" / "1" / "torn").mkdir()
    (tmp_path / "mlruns" / "1" / "torn" / "meta.yaml").write_text("{[")
    (run / "meta.yaml").write_text("run_uuid: abc\nstatus: 3\nstart_time: soon\n")
    (run / "metrics" / "train" / "loss").write_text("1000 0.5 1\nx y z\n2000\n3000 0.25\n")
    os.mkfifo(run / "metrics" / "pipe")
    list(import_runs(home, mlflow.find_runs(str(tmp_path / "mlruns"))))
    (told,) = _told(home).values()
    assert told["state"] == "COMPLETED"
    assert [row[1:] for row in told["rows"]] == [
        (0, 3.0, {"train/loss": 0.25}),
        (1, 1.0, {"train/loss": 0.5}),
    ]
    with pytest.raises(RefusedError):
        list(mlflow.find_runs(str(run)))


def test_tables_may_hold_anything(home: Home, tmp_path: Path) -> None:
    write_trackio(tmp_path / "odd.db")
    odd = [
        ("x", "soon", '{"a": 1}'),
        (5, "soon", '{"a": 1e400, "b": 1' + "0" * 400 + ', "c": 2}'),
        (6, "9999-12-31T23:59:59+00:00", "[" * 100_000),
        (2**62, None, '{"deep": {"a": 1}, "=d": true}'),
    ]
    with sqlite3.connect(tmp_path / "odd.db") as connection:
        connection.executemany(
            "INSERT INTO metrics(run_id, run_name, step, timestamp, metrics) "
            "VALUES ('abc', 'calm-cat', ?, coalesce(?, ''), ?)",
            odd,
        )
    connection.close()
    list(import_runs(home, trackio.find_runs(tmp_path)))
    rows = {row[1]: row[3] for row in _told(home)["calm-cat"]["rows"]}
    assert rows[5] == {"a": math.inf, "c": 2}
    assert rows[2**62] == {"=d": 1}
    assert check(home.path) == []


@pytest.mark.slow
def test_a_server_that_does_not_answer_is_said(home: Home) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(DeterminedError, match=f"MLflow at {address} cannot be asked"):
            list(import_runs(home, mlflow.find_runs(address)))


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("1e-3", 0.001), ("True", True), ("nan", "nan"), ("adam", "adam"), ("1_0", 10)],
)
def test_parameters_are_what_they_look_like(text: str, value: Any) -> None:
    assert plain_value(text) == value
    assert type(plain_value(text)) is type(value)
