from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from determined.tensorboard._events import ScalarEvents
from determined.tensorboard._series import (
    log_training,
    log_validation,
    training_series,
    validation_series,
)
from tests.tensorboard.read_events import read_points


def _points(series: Any) -> dict[str, list[tuple[int, float]]]:
    return {
        tag: [(step, float(value)) for step, value in zip(steps, values, strict=True)]
        for tag, values, steps in series
    }


def test_a_run_of_six_batches_gives_the_documented_tags_and_steps(tmp_path: Path) -> None:
    events = ScalarEvents(tmp_path)
    for batches_trained in (3, 6):
        batch_metrics = [{"loss": float(batches_trained - 3 + k)} for k in range(3)]
        log_training(events, batches_trained, {"loss": 1.0, "red": 2.0}, batch_metrics)
    log_validation(events, 6, {"vl": 1.0, "valid_x": 2, "acc": np.float32(3), "red": True})
    events.close()
    assert read_points(tmp_path) == {
        "Determined/loss": [(step, float(step)) for step in range(6)],
        "Determined/red": [(3, 2.0), (6, 2.0)],
        "Determined/val_vl": [(6, 1.0)],
        "Determined/valid_x": [(6, 2.0)],
        "Determined/val_acc": [(6, 3.0)],
        "Determined/val_red": [(6, 1.0)],
    }


@given(values=st.lists(st.floats(allow_nan=False), min_size=1), start=st.integers(0, 10**6))
def test_rows_and_columns_say_the_same(values: list[float], start: int) -> None:
    averages = {"loss": 0.0, "other": 1.0}
    rows = [{"loss": value} for value in values]
    columns = {"loss": np.array(values)}
    trained = start + len(values)
    by_row = _points(training_series(trained, averages, rows))
    assert by_row == _points(training_series(trained, averages, columns))
    assert by_row["Determined/loss"] == list(enumerate(values, start))


def test_a_metric_of_only_some_batches_keeps_its_steps() -> None:
    rows = [{"a": 1}, {"b": 2}, {"a": 3}]
    points = _points(training_series(10, {}, rows))
    assert points == {"Determined/a": [(7, 1.0), (9, 3.0)], "Determined/b": [(8, 2.0)]}


def test_only_numeric_scalars_are_logged() -> None:
    metrics = {
        "number": np.array(1.5),
        "one_element": np.array([1.0]),
        "text": "high",
        "nothing": None,
        "list": [1.0],
    }
    assert _points(validation_series(1, metrics)) == {"Determined/val_number": [(1, 1.5)]}
    assert _points(training_series(1, metrics)) == {"Determined/number": [(1, 1.5)]}
    assert _points(training_series(1, {}, [metrics])) == {"Determined/number": [(0, 1.5)]}
    columns = {"text": np.array(["high"]), "matrix": np.ones((1, 1)), "flag": np.array([True])}
    assert _points(training_series(1, {}, columns)) == {"Determined/flag": [(0, 1.0)]}


def test_an_average_of_a_batch_metric_is_not_logged_even_if_its_batches_were_not() -> None:
    assert _points(training_series(1, {"a": 1.0}, [{"a": np.ones(2)}])) == {}
    assert _points(training_series(1, {"a": 1.0}, {"a": np.ones((1, 2))})) == {}
