"""Experiments as files for other programs: a table of trials, and one of all metrics.

Files are written beside the folder that they are for, which appears at once and whole.
"""

from __future__ import annotations

import csv
import importlib
import json
import math
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from determined.errors import DeterminedError, RefusedError
from determined.store import Experiment, Reader, Trial, TrialFilter

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_METRICS = {
    "experiment": "int64",
    "trial": "int64",
    "group": "string",
    "name": "string",
    "step": "int64",
    "time": "float64",
    "value": "float64",
}
_BATCH = 50_000


def export(reader: Reader, experiments: Sequence[Experiment], folder: Path, form: str) -> None:
    """Write `trials` and `metrics` of experiments as `csv` or `parquet` into a new folder."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RefusedError(f"{folder} exists already: name a new folder, or an empty one.")
    if form == "parquet":
        _pyarrow()  # before anything is written
    folder = folder.absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:12]}")
    try:
        draft.mkdir()
        with reader.snapshot():
            trials = [
                (experiment, trial)
                for experiment in experiments
                for trial in reader.trials(TrialFilter(experiment_id=experiment.id)).rows
            ]
            rows = [_row(experiment, trial) for experiment, trial in trials]
            write = _write_csv if form == "csv" else _write_parquet
            write(draft / f"trials.{form}", _schema(rows), rows)
            write(draft / f"metrics.{form}", _METRICS, _points(reader, trials))
        if folder.exists():
            folder.rmdir()
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def cell(value: Any) -> Any:
    """A value that is safe for spreadsheets: no text is interpreted as a formula."""
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return "" if value is None else value


def _row(experiment: Experiment, trial: Trial) -> dict[str, Any]:
    return {
        "experiment": experiment.id,
        "experiment_name": experiment.name,
        "labels": ", ".join(experiment.labels),
        "trial": trial.id,
        "state": trial.state,
        "created": trial.created,
        "started": trial.started,
        "ended": trial.ended,
        "batches": trial.total_batches,
        "metric": experiment.searcher_metric,
        "best_validation": trial.best_validation,
        "best_validation_step": trial.best_validation_steps,
        **{f"hparam:{name}": value for name, value in _flat(trial.hparams)},
    }


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{name}.")
        elif value is None or isinstance(value, (str, int, float)):
            yield f"{prefix}{name}", value
        else:
            yield f"{prefix}{name}", json.dumps(value)


def _schema(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The columns of a table and their types: text, if values differ in kind."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: _type_of([row.get(name) for row in rows]) for name in names}


def _type_of(values: Iterable[Any]) -> str:
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return "bool"
    if kinds == {int}:
        return "int64"
    return "float64" if kinds and kinds <= {int, float} else "string"


def _points(reader: Reader, trials: Sequence[tuple[Experiment, Trial]]) -> Iterator[dict[str, Any]]:
    for experiment, trial in trials:
        for report in reader.metrics.reports(trial.id):
            for name, value in report.metrics.items():
                if isinstance(value, (int, float)):
                    yield {
                        "experiment": experiment.id,
                        "trial": trial.id,
                        "group": report.group,
                        "name": name,
                        "step": report.steps_completed,
                        "time": report.time,
                        "value": value,
                    }


def _write_csv(path: Path, schema: Mapping[str, str], rows: Iterable[Mapping[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8", errors="replace") as file:
        writer = csv.writer(file)
        writer.writerow([cell(name) for name in schema])
        writer.writerows([cell(row.get(name)) for name in schema] for row in rows)


def _write_parquet(
    path: Path, schema: Mapping[str, str], rows: Iterable[Mapping[str, Any]]
) -> None:
    arrow, parquet = _pyarrow()
    kinds = arrow.schema([(name, arrow.type_for_alias(kind)) for name, kind in schema.items()])
    remaining = iter(rows)
    # Given a path, pyarrow refuses names that are not UTF-8.
    with path.open("wb") as file, parquet.ParquetWriter(file, kinds) as writer:
        while batch := list(islice(remaining, _BATCH)):
            columns = {
                name: [_fitting(row.get(name), kind) for row in batch]
                for name, kind in schema.items()
            }
            writer.write_table(arrow.table(columns, schema=kinds))


def _fitting(value: Any, kind: str) -> Any:
    if value is None or kind in ("bool", "int64"):
        return value
    if kind == "float64":
        return float(value) if isinstance(value, (int, float)) else math.nan
    return value if isinstance(value, str) else json.dumps(value)


def _pyarrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise DeterminedError(
            "Parquet files need pyarrow: `pip install 'determined-pytorch[parquet]'`, or `det "
            "export csv`."
        ) from error
