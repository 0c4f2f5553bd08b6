"""Runs of MLflow."""

from __future__ import annotations

import math
import os
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from determined.errors import DeterminedError, RefusedError
from determined.platform.homes.home import Home
from determined.platform.trackers import mlflow, trackio
from determined.platform.trackers.importing import Wishes, import_runs
from determined.store import check
from tests.platform.trackers.made import (
    mlflow_server,
    recorded,
    write_mlflow,
    write_trackio,
)

pytestmark = pytest.mark.multiprocess


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


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
    told = recorded(home)
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
    assert str(recorded(home)) == as_text
    (experiment,) = [e for e in client.search_experiments() if e.name == "text"]
    (run,) = client.search_runs([experiment.experiment_id])
    client.log_metric(run.info.run_id, "loss", 0.5, 2_001_000, 0)
    client.set_terminated(run.info.run_id, "FINISHED", 2_002_000)
    grown = {run.name: run.has_grown for run in import_runs(home, mlflow.find_runs(uri), wishes)}
    assert grown == {"first": False, "open": True}
    told = recorded(home)
    assert (told["open"]["state"], told["open"]["reason"]) == ("COMPLETED", "")
    assert told["open"]["rows"] == [("training", 0, 2001.0, {"loss": 0.5})]
    assert check(home.path) == []


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
    (told,) = recorded(home).values()
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
    rows = {row[1]: row[3] for row in recorded(home)["calm-cat"]["rows"]}
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
