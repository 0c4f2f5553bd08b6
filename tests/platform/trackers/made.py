"""What other trackers leave on disk: made by themselves where they are installed."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from determined.platform.homes.home import Home
from determined.store import Reader, TrialFilter
from tests.support.waiting import eventually
from tests.support.workers import free_port


def write_tensorboard(folder: Path, steps: int = 4) -> None:
    """Two runs: one of torch, and one in the two folders of Keras."""
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder / "first")) as writer:
        for step in range(steps):
            writer.add_scalar("loss", 1 / (step + 1), step, walltime=1000 + step)
            writer.add_scalar("val/loss", 2 / (step + 1), step, walltime=1000 + step)
        writer.add_image("picture", np.zeros((3, 4, 5), np.uint8), 0, walltime=1000)
        writer.add_scalar("loss", 9.0, -1)
    for part, value in (("train", 0.5), ("validation", 0.25)):
        with SummaryWriter(str(folder / "keras" / part)) as writer:
            writer.add_scalar("epoch_loss", value, 1, walltime=2000)


def write_mlflow(uri: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two experiments of MLflow with a run each, and one that was deleted; return its client."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow.tracking import MlflowClient

    client = MlflowClient(uri)
    own = client.create_experiment("vision", artifact_location="/nowhere")
    tags = {"team": "a", "mlflow.note.content": "a note", "mlflow.user": "ada"}
    run = client.create_run(own, start_time=1_000_000, run_name="first", tags=tags)
    for name, value in {"lr": "0.1", "layers": "3", "name": "adam", "amp": "True"}.items():
        client.log_param(run.info.run_id, name, value)
    for step in range(3):
        for metric, number in (("loss", 1 / (step + 1)), ("val/loss", 2 / (step + 1))):
            client.log_metric(run.info.run_id, metric, number, 1_000_000 + step * 1000, step)
    client.log_metric(run.info.run_id, "loss", 7.0, 1_009_000, 2)  # the last one counts
    client.log_metric(run.info.run_id, "bad", float("nan"), 1_000_000, 0)
    client.set_terminated(run.info.run_id, "FAILED", 1_010_000)
    other = client.create_experiment("text", artifact_location="/nowhere")
    client.create_run(other, start_time=2_000_000, run_name="open")
    gone = client.create_run(other, start_time=2_000_000, run_name="gone")
    client.delete_run(gone.info.run_id)
    return client


@contextlib.contextmanager
def mlflow_server(database: str, folder: Path) -> Iterator[str]:
    """MLflow's own server in a process of its own; yields its address."""
    port = free_port()
    program = (
        "from mlflow.server import app; from werkzeug.serving import run_simple; "
        f"run_simple('127.0.0.1', {port}, app)"
    )
    places = {"_MLFLOW_SERVER_FILE_STORE": database, "_MLFLOW_SERVER_ARTIFACT_ROOT": str(folder)}
    server = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, **places},
        cwd=folder,
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(lambda: server.poll() is not None or _answers(port), "the server answers")
        assert server.poll() is None, "the server ended at its start"
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def write_trackio(path: Path) -> None:
    """The tables of trackio 0.43, which is not installed here."""
    with sqlite3.connect(path) as connection:
        connection.executescript(
            "CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, "
            "timestamp TEXT NOT NULL, run_name TEXT NOT NULL, step INTEGER NOT NULL, "
            "metrics TEXT NOT NULL, log_id TEXT, space_id TEXT);"
            "CREATE TABLE configs (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, "
            "run_name TEXT NOT NULL, config TEXT NOT NULL, created_at TEXT NOT NULL, "
            "UNIQUE(run_id));"
        )
        config = {"lr": 0.1, "_Username": "ada", "_Group": "g"}
        connection.execute(
            "INSERT INTO configs(run_id, run_name, config, created_at) VALUES (?,?,?,?)",
            ("abc", "calm-cat", json.dumps(config), "2026-01-01T00:00:00+00:00"),
        )
        for step in range(2):
            metrics = {"train/loss": 1 / (step + 1), "note": "text", "val/loss": step}
            connection.execute(
                "INSERT INTO metrics(run_id, timestamp, run_name, step, metrics) "
                "VALUES (?,?,?,?,?)",
                ("abc", f"1970-01-01T00:0{step}:00+00:00", "calm-cat", step, json.dumps(metrics)),
            )
    connection.close()


def recorded(home: Home) -> dict[str, dict[str, Any]]:
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
