"""Runs of trackio: an SQLite file per project."""

from __future__ import annotations

import datetime
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from determined.errors import RefusedError
from determined.platform.trackers.foreign_run import ForeignRun, Point, point_of


def find_runs(path: Path) -> Iterator[ForeignRun]:
    """The runs of a project's file, or of all in a folder."""
    if path.is_dir():
        files = sorted(path.glob("*.db"))
        if not files:
            raise RefusedError(f"There is no project of trackio (*.db) in {path}.")
    elif path.is_file():
        files = [path]
    else:
        raise RefusedError(f"There is no {path}. trackio keeps projects in TRACKIO_DIR, as *.db.")
    for file in files:
        yield from _in_file(file)


def _in_file(path: Path) -> Iterator[ForeignRun]:
    project = path.stem
    try:
        with closing(_open(path)) as connection:
            columns = {row[1] for row in connection.execute("PRAGMA table_info(metrics)")}
            key = "run_id" if "run_id" in columns else "run_name"
            configs = dict(connection.execute(f"SELECT {key}, config FROM configs").fetchall())
            rows = connection.execute(
                f"SELECT {key}, max(run_name) FROM metrics GROUP BY {key} ORDER BY min(id)"
            ).fetchall()
    except sqlite3.DatabaseError as error:
        raise RefusedError(f"{path} is no project of trackio: {error}.") from error
    for run, name in rows:
        config = _mapping(configs.get(run))
        hparams = {name: value for name, value in config.items() if not name.startswith("_")}
        yield ForeignRun(
            origin=f"trackio:{project}:{run}",
            name=str(name or run),
            project=f"trackio/{project}",
            points=lambda run=run: _points(path, key, run),  # type: ignore[misc]
            owner=str(config.get("_Username") or ""),
            labels=tuple(filter(None, [str(config.get("_Group") or "")])),
            hparams=hparams,
            metadata={"trackio": {"run_id": str(run), "file": str(path.absolute())}},
        )


def _points(path: Path, key: str, run: Any) -> Iterator[Point]:
    with closing(_open(path)) as connection:
        rows = connection.execute(
            f"SELECT step, timestamp, metrics FROM metrics WHERE {key}=? ORDER BY id", (run,)
        )
        for step, timestamp, metrics in rows:
            for name, value in _mapping(metrics).items():
                is_number = isinstance(value, (int, float))
                point = point_of(name, step, _seconds(timestamp), value) if is_number else None
                if point is not None:
                    yield point


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True, timeout=30)


def _mapping(text: Any) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _seconds(text: Any) -> float:
    try:
        moment = datetime.datetime.fromisoformat(str(text))
    except ValueError:
        return 0.0
    return max(moment.timestamp(), 0.0)
