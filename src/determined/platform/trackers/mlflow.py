"""Runs of MLflow: in a folder `mlruns`, an SQLite file, or behind an address.

Folders and SQLite files are read here, which needs no mlflow: its own client refuses folders since
version 3.7 or so, and changes the tables of a database that an older version wrote. Anything else
is asked through its client.
"""

from __future__ import annotations

import math
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlparse

import yaml

from determined._os.regular_file import open_regular
from determined.errors import DeterminedError, RefusedError
from determined.platform.trackers.foreign_run import ForeignRun, Point, plain_value, point_of

_STATES = {"FINISHED": "COMPLETED", "FAILED": "ERROR", "KILLED": "CANCELED"}
_NUMBERS = {1: "RUNNING", 2: "SCHEDULED", 3: "FINISHED", 4: "FAILED", 5: "KILLED"}
_NOT_ENDED = "it had not ended when it was imported"
_MOST_TEXT_BYTES = 1 << 20
_PAGE = 1000


def find_runs(uri: str) -> Iterator[ForeignRun]:
    """The runs of all experiments that are not deleted."""
    scheme = urlparse(uri).scheme
    if scheme == "sqlite":
        path = Path(unquote(uri.partition(":///")[2]))
        return _in_database(path)
    if scheme in ("", "file"):
        path = Path(unquote(urlparse(uri).path) if scheme else uri)
        if path.is_file():
            return _in_database(path)
        if path.is_dir():
            return _in_folder(path)
        raise RefusedError(f"{path} is neither a folder `mlruns` nor an SQLite file of MLflow.")
    return _behind_address(uri)


def _run(
    run_id: str,
    name: str,
    experiment: str,
    status: str,
    times: tuple[Any, Any],
    user: str,
    params: Mapping[str, str],
    tags: Mapping[str, str],
    points: Any,
    artifacts: str,
) -> ForeignRun:
    own = {key: value for key, value in sorted(tags.items()) if not key.startswith("mlflow.")}
    metadata: dict[str, Any] = {"tags": own, "mlflow": {"run_id": run_id, "artifacts": artifacts}}
    if source := tags.get("mlflow.source.name"):
        metadata["mlflow"]["source"] = source
    state = _STATES.get(status, "CANCELED")
    started, ended = (time / 1000 if isinstance(time, int) and time > 0 else None for time in times)
    return ForeignRun(
        origin=f"mlflow:{run_id}",
        name=name or tags.get("mlflow.runName") or run_id,
        project=f"mlflow/{experiment}",
        points=points,
        owner=user or tags.get("mlflow.user", ""),
        description=tags.get("mlflow.note.content", ""),
        labels=tuple(f"{key}={value}" for key, value in own.items()),
        hparams={key: plain_value(value) for key, value in sorted(params.items())},
        metadata=metadata,
        state=state,
        reason="" if status in _STATES else _NOT_ENDED,
        started=started,
        ended=ended,
    )


# Folders


def _in_folder(root: Path) -> Iterator[ForeignRun]:
    experiments = [
        (path, about)
        for path in sorted(root.iterdir())
        if path.is_dir() and "experiment_id" in (about := _meta(path))
    ]
    if not experiments:
        raise RefusedError(f"{root} is no folder of MLflow: it has no experiments with meta.yaml.")
    for folder, experiment in experiments:
        if experiment.get("lifecycle_stage") == "deleted":
            continue
        for path in sorted(folder.iterdir()):
            about = _meta(path) if path.is_dir() else {}
            run_id = about.get("run_id") or about.get("run_uuid")
            if run_id and about.get("lifecycle_stage") != "deleted":
                yield _run_in_folder(path, str(run_id), about, str(experiment.get("name") or "0"))


def _run_in_folder(
    path: Path, run_id: str, about: Mapping[str, Any], experiment: str
) -> ForeignRun:
    def points() -> Iterator[Point]:
        for name, file in _files(path / "metrics"):
            with open_regular(file) as lines:
                for line in lines:
                    point = _point(name, line.split())
                    if point is not None:
                        yield point

    status = about.get("status")
    return _run(
        run_id,
        str(about.get("run_name") or ""),
        experiment,
        _NUMBERS.get(status, "") if isinstance(status, int) else str(status),
        (about.get("start_time"), about.get("end_time")),
        str(about.get("user_id") or ""),
        {name: _text(file) for name, file in _files(path / "params")},
        {name: _text(file) for name, file in _files(path / "tags")},
        points,
        str(about.get("artifact_uri") or ""),
    )


def _point(name: str, words: list[bytes]) -> Point | None:
    """A line of a metric: time in milliseconds, value, step; older versions wrote no step."""
    if len(words) < 2:
        return None
    return _in_seconds(name, words[2] if len(words) > 2 else 0, words[0], words[1])


def _in_seconds(name: str, step: Any, milliseconds: Any, value: Any) -> Point | None:
    point = point_of(name, step, milliseconds, value)
    return None if point is None else point._replace(time=point.time / 1000)


def _meta(folder: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(_text(folder / "meta.yaml"))
    except (OSError, yaml.YAMLError):
        return {}
    return found if isinstance(found, dict) else {}


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """The files below a folder; their names may have slashes."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield str(path.relative_to(folder)), path


def _text(path: Path) -> str:
    with open_regular(path) as file:
        return file.read(_MOST_TEXT_BYTES).decode("utf-8", "replace")


# Databases


def _in_database(path: Path) -> Iterator[ForeignRun]:
    if not path.is_file():
        raise RefusedError(f"There is no SQLite file {path}.")
    try:
        with closing(_open(path)) as connection:
            rows = connection.execute(
                "SELECT r.run_uuid, r.name, e.name, r.status, r.start_time, r.end_time, r.user_id, "
                "r.artifact_uri FROM runs r JOIN experiments e ON e.experiment_id=r.experiment_id "
                "WHERE r.lifecycle_stage='active' AND e.lifecycle_stage='active' "
                "ORDER BY r.start_time, r.run_uuid"
            ).fetchall()
            for run_id, name, experiment, status, start, end, user, artifacts in rows:
                yield _run(
                    str(run_id),
                    str(name or ""),
                    str(experiment),
                    str(status),
                    (start, end),
                    str(user or ""),
                    _pairs(connection, "params", run_id),
                    _pairs(connection, "tags", run_id),
                    lambda run_id=run_id: _points_in_database(path, run_id),
                    str(artifacts or ""),
                )
    except sqlite3.DatabaseError as error:
        raise RefusedError(f"{path} is no SQLite file of MLflow: {error}.") from error


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True, timeout=30)


def _pairs(connection: sqlite3.Connection, table: str, run_id: str) -> dict[str, str]:
    rows = connection.execute(f"SELECT key, value FROM {table} WHERE run_uuid=?", (run_id,))
    return {str(key): str(value) for key, value in rows}


def _points_in_database(path: Path, run_id: str) -> Iterator[Point]:
    with closing(_open(path)) as connection:
        rows = connection.execute(
            "SELECT key, step, timestamp, value, is_nan FROM metrics WHERE run_uuid=? "
            "ORDER BY timestamp, key, step",
            (run_id,),
        )
        for name, step, time, value, is_nan in rows:
            point = _in_seconds(name, step, time, math.nan if is_nan else value)
            if point is not None:
                yield point


# Servers


def _behind_address(uri: str) -> Iterator[ForeignRun]:
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # it would try for minutes
    try:
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient
    except ImportError as error:
        raise DeterminedError(
            f"{uri} is asked through the client of MLflow: `pip install "
            "'determined-pytorch[mlflow]'`, then import again. Folders and SQLite files need no "
            "mlflow."
        ) from error
    client = MlflowClient(uri)
    try:
        for experiment in _pages(client.search_experiments):
            for run in _pages(client.search_runs, [experiment.experiment_id]):
                yield _run(
                    run.info.run_id,
                    run.info.run_name or "",
                    experiment.name,
                    run.info.status,
                    (run.info.start_time, run.info.end_time),
                    run.info.user_id or "",
                    run.data.params,
                    run.data.tags,
                    lambda run=run: _points_of(client, run.info.run_id, sorted(run.data.metrics)),
                    run.info.artifact_uri or "",
                )
    except MlflowException as error:
        line = str(error).partition("\n")[0]
        raise DeterminedError(f"MLflow at {uri} cannot be asked: {line}") from error


def _pages(ask: Any, *args: Any) -> Iterator[Any]:
    token = None
    while True:
        page = ask(*args, max_results=_PAGE, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _points_of(client: Any, run_id: str, names: Iterable[str]) -> Iterator[Point]:
    for name in names:
        for metric in client.get_metric_history(run_id, name):
            yield Point(name, metric.step, metric.timestamp / 1000, metric.value)
