from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

from determined.pytorch import Batch, PyTorchCallback, PyTorchTrialContext
from determined.pytorch.callbacks import CSVTracker, LearningRateMonitor
from tests.pytorch.callbacks.trials import MakeCallbacks, fit
from tests.support.trials import LineTrial, the_checkpoint
from tests.support.workers import run_workers


class Line(LineTrial):
    num_batches = 20


def _tracker(path: Path | str) -> MakeCallbacks:
    return lambda context: {"csv": CSVTracker(context, path)}


def _rows(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["steps_completed", "group", "metric", "value"]
    return rows


def test_every_metric_has_a_line(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "metrics.csv"
    fit(_tracker(path), 4, Line, validation_period=Batch(4))
    rows = _rows(path)
    assert [row[:3] for row in rows] == [
        ["2", "training", "loss"],
        ["2", "training", "batches"],
        ["2", "training", "epochs"],
        ["4", "training", "loss"],
        ["4", "training", "batches"],
        ["4", "training", "epochs"],
        ["4", "validation", "validation_loss"],
    ]
    # Losses 10 (weight 0, x = 1 and 2) and 45.125 (weight 0.1, x = 3 and 4).
    assert float(rows[0][3]) == pytest.approx(27.5625)


def test_resumed_run_has_every_step_once(tmp_path: Path) -> None:
    unbroken, broken = tmp_path / "a.csv", tmp_path / "b.csv"
    fit(_tracker(unbroken), 10, Line, validation_period=Batch(2))
    fit(_tracker(broken), 8, Line, validation_period=Batch(2), checkpoint_period=Batch(4))
    with broken.open("a") as file:
        file.write("10,train")  # as a killed run may leave it
    checkpoint = the_checkpoint(4)
    fit(_tracker(broken), 10, Line, validation_period=Batch(2), latest_checkpoint=checkpoint)
    assert _rows(broken) == _rows(unbroken)


def test_new_run_keeps_the_file_of_an_older_one(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    fit(_tracker(path), 2, Line)
    first = path.read_text()
    fit(_tracker(path), 4, Line)
    assert (tmp_path / "metrics.csv.old").read_text() == first
    assert [row[0] for row in _rows(path)][-1] == "4"
    assert len(list(tmp_path.glob("*metrics*"))) == 2


def test_monitors_that_come_first_are_recorded_too(tmp_path: Path) -> None:
    def make(context: PyTorchTrialContext) -> dict[str, PyTorchCallback]:
        return {
            "lr": LearningRateMonitor(context),
            "csv": CSVTracker(context, tmp_path / "metrics.csv"),
        }

    fit(make, 2, Line)
    assert ["2", "training", "lr/SGD/0", "0.01"] in _rows(tmp_path / "metrics.csv")


@pytest.mark.multiprocess
def test_only_the_chief_writes(tmp_path: Path) -> None:
    run_workers(2, _train_on_a_rank, str(tmp_path))
    steps = [row[0] for row in _rows(tmp_path / "metrics.csv") if row[1] == "training"]
    assert steps == ["2"] * 3 + ["4"] * 3


def _train_on_a_rank(directory: str) -> None:
    os.chdir(directory)
    os.environ["DET_STORAGE"] = f"{directory}/storage"
    fit(_tracker(f"{directory}/metrics.csv"), 4, Line)
