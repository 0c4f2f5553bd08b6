"""A stop between two reports loses nothing of the next one: its row is that of an unbroken run."""

from __future__ import annotations

import logging
import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from determined import pytorch
from determined.pytorch import Batch, MetricReducer, PyTorchCallback
from determined.pytorch._metrics.batch_metrics import BatchMetrics, averages
from tests.support.messages import documented
from tests.support.trials import LineTrial, train
from tests.support.workers import run_workers


class Largest(MetricReducer):
    """Keeps its state in attributes, some of them tensors and arrays."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.largest, self.all = torch.tensor(-1.0), np.zeros(0)

    def update(self, value: torch.Tensor) -> None:
        self.largest = torch.maximum(self.largest, value)
        self.all = np.append(self.all, float(value))

    def per_slot_reduce(self) -> Any:
        return float(self.largest), self.all.tolist()

    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> Any:
        return {
            "largest": max(largest for largest, _ in per_slot_metrics),
            "total": sum(sum(values) for _, values in per_slot_metrics),
        }


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


class Rows(PyTorchCallback):
    """Keeps what `on_training_workload_end` gets."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def on_training_workload_end(self, avg_metrics: Any, batch_metrics: Any) -> None:
        self.rows.append(
            (avg_metrics, [{k: float(v) for k, v in b.items()} for b in batch_metrics])
        )


class Segmented(LineTrial):
    """Returns metrics of several kinds, and stops after some batches."""

    num_batches = 30
    learning_rate = 1e-5
    stop_after: tuple[int, ...] = ()
    rows: list[Any] = []  # replaced by each test

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        super().__init__(context)
        self.mean = context.wrap_reducer(_mean, "mean", for_validation=False)
        self.reducer = self.wrap(context)
        self.callbacks = {"rows": Rows()}
        type(self).rows = self.callbacks["rows"].rows  # type: ignore[attr-defined]

    def wrap(self, context: pytorch.PyTorchTrialContext) -> Any:
        return context.wrap_reducer(Largest(), for_validation=False)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        loss = super().train_batch(batch, epoch_idx, batch_idx)["loss"]
        self.mean.update(loss.item())  # type: ignore[attr-defined]
        self.reducer.update(loss.detach())
        if batch_idx + 1 in self.stop_after and self.context.distributed.rank == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        return {"loss": loss, "half": loss.detach().half(), "number": batch_idx}


def rows_of(stops: tuple[int, ...], trial_class: type[Segmented] = Segmented, **fit: Any) -> Any:
    rows: list[Any] = []
    options = {"max_length": Batch(20), "reporting_period": Batch(10), **fit}
    with tempfile.TemporaryDirectory() as storage:
        init = {"seed": 1, "run_id": "run", "checkpoint_storage": storage}
        for at in (*stops, None):
            trial_class.stop_after = () if at is None else (at,)
            try:
                train(trial_class, init, latest_checkpoint="latest", **options)
            except SystemExit:
                assert at is not None
            rows += trial_class.rows
    return rows


def test_the_row_after_a_stop_is_that_of_the_unbroken_run() -> None:
    whole = rows_of(())
    assert [row["batches"] for row, _ in whole] == [10, 20]
    assert [len(batches) for _, batches in whole] == [10, 10]
    assert rows_of((5,)) == whole
    assert rows_of((2, 5, 10, 13)) == whole


def test_what_is_due_at_other_batches_ends_a_segment_as_before() -> None:
    options: dict[str, Any] = {"validation_period": Batch(4), "checkpoint_period": Batch(7)}
    whole = rows_of((), **options)
    assert rows_of((5, 6, 9, 15), **options) == whole


def test_a_trials_own_stop_is_its_end_and_reports() -> None:
    class Ends(Segmented):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            if batch_idx == 4:
                self.context.set_stop_requested(True)
            return super().train_batch(batch, epoch_idx, batch_idx)

    rows = rows_of((), Ends, reporting_period=Batch(1000), max_length=Batch(2000))
    assert [row["batches"] for row, _ in rows] == [100]  # it is looked for every 100 batches


class Handle:
    """Something of this process alone."""

    def __reduce__(self) -> Any:
        raise TypeError("a handle cannot be pickled")


class Opaque(Largest):
    """Holds what cannot be saved."""

    def __init__(self) -> None:
        super().__init__()
        self.handle = Handle()


def test_a_reducer_that_cannot_be_saved_is_said(caplog: pytest.LogCaptureFixture) -> None:
    class Hidden(Segmented):
        def wrap(self, context: pytorch.PyTorchTrialContext) -> Any:
            return context.wrap_reducer(Opaque(), for_validation=False)

    caplog.set_level(logging.WARNING)
    whole = rows_of((), Hidden)
    assert not caplog.records
    resumed = rows_of((5,), Hidden)
    (line,) = [r.getMessage() for r in caplog.records if "next report" in r.getMessage()]
    documented("a stop between two reports, with a reducer that cannot be saved", line)
    assert resumed[0][0]["loss"] == whole[0][0]["loss"]
    assert resumed[0][0]["mean"] == whole[0][0]["mean"]
    assert resumed[0][0]["total"] != whole[0][0]["total"]


def test_a_stop_at_a_report_has_nothing_to_save(caplog: pytest.LogCaptureFixture) -> None:
    class Hidden(Segmented):
        def wrap(self, context: pytorch.PyTorchTrialContext) -> Any:
            return context.wrap_reducer(Opaque(), for_validation=False)

    assert rows_of((10,), Hidden) == rows_of((), Hidden)
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


VALUES = st.one_of(
    st.floats(-10, 10).map(torch.tensor),
    st.floats(-10, 10).map(lambda v: torch.tensor(v, dtype=torch.float64)),
    st.floats(-10, 10),
    st.integers(-10, 10),
    st.lists(st.floats(-1, 1), min_size=2, max_size=2).map(torch.tensor),
    st.sampled_from(["text", None]),
)


@settings(deadline=None, max_examples=60)
@given(values=st.lists(VALUES, min_size=1, max_size=12), data=st.data())
def test_metrics_that_were_cut_and_continued_are_the_same(values: list[Any], data: Any) -> None:
    cut = data.draw(st.integers(1, len(values)))
    whole, first = BatchMetrics(), BatchMetrics()
    for value in values:
        whole.append({"x": value})
    for value in values[:cut]:
        first.append({"x": value})
    second = BatchMetrics.of(first.columns(), cut)
    for value in values[cut:]:
        second.append({"x": value})
    assert len(second) == len(whole)
    assert repr(second.columns()) == repr(whole.columns())
    assert repr(averages(second.columns())) == repr(averages(whole.columns()))


def _on_two_ranks(storage: str, stop_after: tuple[int, ...]) -> list[Any]:
    Segmented.stop_after = stop_after
    init = {"seed": 1, "run_id": "run", "checkpoint_storage": Path(storage)}
    options: dict[str, Any] = {"max_length": Batch(10), "reporting_period": Batch(10)}
    try:
        train(Segmented, init, latest_checkpoint="latest", **options)
    except SystemExit:
        assert stop_after
    return Segmented.rows


@pytest.mark.multiprocess
def test_each_rank_keeps_its_own_part_of_a_row(tmp_path: Path) -> None:
    whole = run_workers(2, _on_two_ranks, str(tmp_path / "whole"), ())
    cut = run_workers(2, _on_two_ranks, str(tmp_path / "cut"), (4,))
    resumed = run_workers(2, _on_two_ranks, str(tmp_path / "cut"), ())
    assert cut == [[], []]
    assert resumed == whole
