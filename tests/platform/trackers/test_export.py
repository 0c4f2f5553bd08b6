"""Experiments as CSV and Parquet: everything that was reported, in new folders that are whole."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import pytest

from determined.platform.homes.home import Home
from determined.platform.trackers.foreign_run import ForeignRun, Point
from determined.platform.trackers.importing import Wishes, import_runs
from tests.cli.det import call_det

pytestmark = pytest.mark.multiprocess


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    first = [Point("loss", 1, 10, 0.5), Point("=loss", 2, 11, math.nan), Point("val/x", 2, 12, 3)]
    second = [Point("loss", 7, 20, math.inf)]
    runs = [
        ForeignRun("a", "one", "lab/p", lambda: first, hparams={"lr": 0.1, "deep": {"n": [1]}}),
        ForeignRun("b", "=two", "lab/p", lambda: second, hparams={"lr": 1, "amp": True}),
        ForeignRun("c", "other", "lab/q", lambda: []),
    ]
    list(import_runs(home, runs, Wishes(metric="val/x")))
    return home


def _export(home: Home, *words: str) -> tuple[int, str]:
    answer = call_det("export", *words, home=home.path)
    return answer.code, answer.output + answer.errors


def _csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_csv_has_trials_and_metrics(home: Home, tmp_path: Path) -> None:
    target = tmp_path / "new" / "out"
    assert _export(home, "csv", "lab/p", str(target)) == (0, f"Wrote 2 experiments to {target}\n")
    trials = _csv(target / "trials.csv")
    assert [(t["experiment"], t["experiment_name"]) for t in trials] == [
        ("1", "one"),
        ("2", "'=two"),
    ]
    assert [t["hparam:lr"] for t in trials] == ["0.1", "1"]
    assert (trials[0]["hparam:deep.n"], trials[1]["hparam:amp"]) == ("[1]", "True")
    assert (trials[0]["best_validation"], trials[1]["best_validation"]) == ("3.0", "")
    metrics = [tuple(row.values()) for row in _csv(target / "metrics.csv")]
    assert metrics == [
        ("1", "1", "training", "loss", "1", "10.0", "0.5"),
        ("1", "1", "training", "'=loss", "2", "11.0", "nan"),
        ("1", "1", "validation", "val/x", "2", "12.0", "3"),
        ("2", "2", "training", "loss", "7", "20.0", "inf"),
    ]
    assert [path.name for path in target.parent.iterdir()] == ["out"]  # no draft is left


def test_parquet_has_types(home: Home, tmp_path: Path) -> None:
    parquet: Any = pytest.importorskip("pyarrow.parquet")
    target = tmp_path / "out"
    target.mkdir()
    assert _export(home, "parquet", "1", str(target))[0] == 0
    (trial,) = parquet.read_table(target / "trials.parquet").to_pylist()
    assert (trial["experiment"], trial["hparam:lr"], trial["best_validation"]) == (1, 0.1, 3.0)
    table = parquet.read_table(target / "metrics.parquet")
    assert table.column("name").to_pylist() == ["loss", "=loss", "val/x"]
    assert math.isnan(table.column("value").to_pylist()[1])
    assert str(table.schema.field("step").type) == "int64"


def test_what_cannot_be_exported_is_said(home: Home, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for words, sentence in {
        ("csv", "1", str(tmp_path / "full")): "exists already",
        ("csv", "99", str(tmp_path / "x")): "There is no experiment 99",
        ("csv", "lab/none", str(tmp_path / "x")): "has no project 'none'",
        ("csv", "none", str(tmp_path / "x")): "has no project 'none'",
    }.items():
        code, text = _export(home, *words)
        assert (code, sentence in text) == (1, True), text
    assert not (tmp_path / "x").exists()
    empty = Home(tmp_path / "empty")
    assert "no experiments yet" in _export(empty, "csv", "1", str(tmp_path / "x"))[1]
