"""TrainContext: what may be reported, by whom, and where event files go."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from determined.core import (
    DistributedContext,
    DummyTrainContext,
    EarlyExitReason,
    TrainContext,
)
from determined.core._train import default_tensorboard_path
from determined.core.backends.backend import LocalBackend
from tests.support.workers import run_threads


@pytest.fixture
def train(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> DummyTrainContext:
    caplog.set_level(logging.DEBUG, logger="determined.core")
    return DummyTrainContext(tmp_path / "events")


def test_metrics_of_all_kinds_are_reported(
    train: TrainContext, caplog: pytest.LogCaptureFixture
) -> None:
    train.report_training_metrics(steps_completed=10, metrics={"loss": 1.0}, batch_metrics=[{}])
    train.report_validation_metrics(20, {"acc": 0.5})
    train.report_metrics("inference", 30, {"n": 1})
    assert caplog.messages == [
        "report_training_metrics(steps_completed=10, metrics={'loss': 1.0})",
        "report_validation_metrics(steps_completed=20, metrics={'acc': 0.5})",
        "report_metrics(group='inference', steps_completed=30, metrics={'n': 1})",
    ]
    assert train._get_last_validation() == 20


def test_the_best_validation_is_known_once_tracking_is_set(train: TrainContext) -> None:
    train._set_best_tracking("acc", smaller_is_better=False, best=0.25)
    assert train.get_experiment_best_validation() == 0.25
    train.report_validation_metrics(1, {"acc": 0.5})
    assert train.get_experiment_best_validation() == 0.5


def test_log_reports_training_and_validation_and_counts_steps(
    train: TrainContext, caplog: pytest.LogCaptureFixture
) -> None:
    train._set_best_tracking("accuracy", smaller_is_better=False)
    train.log({"accuracy": 0.5, "loss": 1.0, "val/loss": 2.0, "Eval_f1": 0.1})
    train.log({"valence": 3})
    train.log({"loss": 0.5}, step=10)
    train.report_validation_metrics(12, {"accuracy": 0.75})
    train.log({"valid": 4})
    train.log({})
    assert caplog.messages == [
        "report_training_metrics(steps_completed=1, metrics={'loss': 1.0})",
        "report_validation_metrics(steps_completed=1, "
        "metrics={'accuracy': 0.5, 'val/loss': 2.0, 'Eval_f1': 0.1})",
        "report_training_metrics(steps_completed=2, metrics={'valence': 3})",
        "report_training_metrics(steps_completed=10, metrics={'loss': 0.5})",
        "report_validation_metrics(steps_completed=12, metrics={'accuracy': 0.75})",
        "report_validation_metrics(steps_completed=13, metrics={'valid': 4})",
    ]
    assert train.get_experiment_best_validation() == 0.75


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (([("loss", 1)],), "`metrics` must be a dict, got list"),
        (({1: 2.0},), "Names of metrics must be strings, got 1"),
        (({"loss": 1}, -1), "`step` must be an integer >= 0"),
        (({"loss": 1}, 1.5), "`step` must be an integer >= 0"),
    ],
)
def test_log_says_what_is_wrong(train: TrainContext, arguments: Any, problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=problem):
        train.log(*arguments)


def test_a_validation_metric_may_be_none(
    train: TrainContext, caplog: pytest.LogCaptureFixture
) -> None:
    train.report_validation_metrics(1, {"acc": None, "loss": 1})
    assert "metrics={'acc': None, 'loss': 1}" in caplog.text


def test_binary_validation_metrics_are_dropped(
    train: TrainContext, caplog: pytest.LogCaptureFixture
) -> None:
    train.report_validation_metrics(1, {"blob": b"x", "loss": 1})
    assert "Dropped validation metrics that are bytes: blob." in caplog.text
    assert "metrics={'loss': 1})" in caplog.text


@pytest.mark.parametrize("group", ["", "a.b", None])
def test_group_names_are_checked(train: TrainContext, group: Any) -> None:
    with pytest.raises(ValueError, match="`group`"):
        train.report_metrics(group, 1, {})


@pytest.mark.parametrize("steps", [-1, 1.5, "1", None, 2**63])
def test_step_counts_are_checked(train: TrainContext, steps: Any) -> None:
    with pytest.raises(ValueError, match="`steps_completed`"):
        train.report_training_metrics(steps, {})


def test_metrics_must_be_a_dict(train: TrainContext) -> None:
    with pytest.raises(TypeError, match="`metrics` must be a dict, got list"):
        train.report_training_metrics(1, [])  # type: ignore[arg-type]  # the wrong type is the point


@pytest.mark.parametrize("progress", [-0.1, 1.1, float("nan")])
def test_progress_lies_between_zero_and_one(train: TrainContext, progress: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        train.report_progress(progress)


def test_exit_reasons_may_be_given_by_value(
    train: TrainContext, caplog: pytest.LogCaptureFixture
) -> None:
    train.report_early_exit("EXITED_REASON_INVALID_HP")  # type: ignore[arg-type]  # published form
    assert "report_early_exit(reason=INVALID_HP)" in caplog.text
    with pytest.raises(ValueError, match="nonsense"):
        train.report_early_exit("nonsense")  # type: ignore[arg-type]  # the wrong value is the point


def test_metadata_round_trips(train: TrainContext) -> None:
    train.set_metadata({"a": {"b": 1}})
    assert train.get_metadata() == {"a": {"b": 1}}
    with pytest.raises(TypeError, match="`metadata`"):
        train.set_metadata([])  # type: ignore[arg-type]  # the wrong type is the point


def test_only_the_chief_reports(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level(logging.INFO, logger="determined.core")

    def report(distributed: DistributedContext) -> str:
        train = TrainContext(LocalBackend(), distributed, tmp_path)
        train.report_training_metrics(1, {"rank": distributed.rank})
        train.report_progress(0.5)
        train.set_status("training")
        train.report_early_exit(EarlyExitReason.INVALID_HP)
        return str(train.get_tensorboard_path().relative_to(tmp_path))

    assert run_threads((1, 2), report) == [".", "rank_1"]
    count = {text: sum(text in message for message in caplog.messages) for text in _EXPECTED}
    assert count == _EXPECTED


_EXPECTED = {
    "'rank': 0": 1,
    "'rank': 1": 0,
    "report_progress": 1,
    "status: training": 1,
    "dropped on rank 1": 1,
    "report_early_exit": 2,
}


def test_the_event_directory_appears_when_asked_for(
    train: TrainContext, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert not (tmp_path / "events").exists()
    train.upload_tensorboard_files(lambda path: True, lambda path, rank: path)
    assert not (tmp_path / "events").exists()
    assert train.get_tensorboard_path() == tmp_path / "events"
    assert (tmp_path / "events").is_dir()
    assert "upload_tensorboard_files" in caplog.text


def test_two_runs_have_two_event_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = default_tensorboard_path(tmp_path), default_tensorboard_path(tmp_path)
    assert first != second
    assert first.parent == tmp_path / "tensorboard"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    path = DummyTrainContext().get_tensorboard_path()
    assert path.is_relative_to(tmp_path / "determined" / "tensorboard")
