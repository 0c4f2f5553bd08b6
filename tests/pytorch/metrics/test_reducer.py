"""Reducers: the built-in four, and those of users."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from determined.pytorch import MetricReducer, Reducer
from determined.pytorch._metrics.reducer import _simple_reduce_metrics
from determined.pytorch._metrics.wrapped_reducers import _PyTorchReducerContext


class _Mean(MetricReducer):
    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.total, self.number = 0.0, 0

    def update(self, value: float) -> None:
        self.total += value
        self.number += 1

    def per_slot_reduce(self) -> Any:
        return self.total, self.number

    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> Any:
        assert type(per_slot_metrics) is list
        totals, numbers = zip(*per_slot_metrics, strict=True)
        return sum(totals) / sum(numbers)


def test_values_of_the_enumeration_are_the_published_ones() -> None:
    published = {"AVG": 1, "SUM": 2, "MAX": 3, "MIN": 4}
    assert {r.name: r.value for r in Reducer} == {**published, "SAMPLE_AVG": 5}


def test_simple_reduction_covers_all_elements() -> None:
    values = np.array([[1.0, 2.0], [3.0, 6.0]])
    results = [_simple_reduce_metrics(r, values) for r in Reducer]
    assert results == [3.0, 12.0, 6.0, 1.0, 3.0]
    assert _simple_reduce_metrics(Reducer.AVG, [2.0, 15.0], [3, 2]) == pytest.approx(7.2)
    with pytest.raises(RuntimeError, match="match"):
        _simple_reduce_metrics(Reducer.AVG, [1.0, 2.0], [1])
    with pytest.raises(NotImplementedError):
        _simple_reduce_metrics("MEDIAN", [1.0])  # type: ignore[arg-type]


def test_reducer_objects_are_returned_and_functions_become_some() -> None:
    context = _PyTorchReducerContext()
    mean = _Mean()
    assert context.wrap_reducer(mean, name="mean") is mean
    total: Any = context.wrap_reducer(sum, name="total")
    for value in (1.0, 2.0, 6.0):
        mean.update(value)
        total.update(value)
    assert context.reduce_metrics(for_training=True) == {"mean": 3.0, "total": 9.0}
    context.reset_reducers()
    total.update(5)
    mean.update(5)
    assert context.reduce_metrics(for_training=False) == {"mean": 5.0, "total": 5}


def test_flags_select_reducers_and_none_means_no_communication() -> None:
    asked: list[Any] = []

    def allgather(mine: Any) -> list[Any]:
        asked.append(mine)
        return [mine]

    context = _PyTorchReducerContext(allgather)
    assert context.reduce_metrics(for_training=True) == {}
    context.wrap_reducer(len, "t", for_validation=False)
    assert context.reduce_metrics(for_training=False) == {}
    assert asked == []
    context.wrap_reducer(len, "v", for_training=False)
    assert context.reduce_metrics(for_training=True) == {"t": 0}
    assert context.reduce_metrics(for_training=False) == {"v": 0}
    assert asked == [[[]], [[]]]


def test_a_reducer_is_wrapped_once_and_must_be_one() -> None:
    context = _PyTorchReducerContext()
    mean = _Mean()
    context.wrap_reducer(mean, name="a")
    with pytest.raises(AssertionError, match="once"):
        context.wrap_reducer(mean, name="b")
    with pytest.raises(AssertionError, match="reducer"):
        context.wrap_reducer(3)  # type: ignore[call-overload]


def test_equal_functions_and_names_are_worth_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    context = _PyTorchReducerContext()
    context.wrap_reducer(sum, name="a")
    context.wrap_reducer(sum, name="b")
    context.wrap_reducer(max, name="b")
    messages = [r.getMessage() for r in caplog.records]
    assert len(messages) == 2
    assert "twice" in messages[0]
    assert "'b'" in messages[1]


def test_unnamed_reducers_return_dictionaries_and_named_ones_do_not() -> None:
    context = _PyTorchReducerContext()
    context.wrap_reducer(lambda values: {"low": 1, "high": 2})
    context.wrap_reducer(lambda values: 3, name="high")  # later ones win
    assert context.reduce_metrics(for_training=True) == {"low": 1, "high": 3}

    context = _PyTorchReducerContext()
    context.wrap_reducer(sum)
    with pytest.raises(AssertionError, match=r"sum.*name=None.*int"):
        context.reduce_metrics(for_training=True)

    context = _PyTorchReducerContext()
    context.wrap_reducer(lambda values: {}, name="named")
    with pytest.raises(AssertionError, match=r"named.*dict"):
        context.reduce_metrics(for_training=True)


@pytest.mark.parametrize("method", ["per_slot_reduce", "cross_slot_reduce"])
def test_errors_of_users_carry_the_reducers_name(method: str) -> None:
    class Broken(_Mean):
        def per_slot_reduce(self) -> Any:
            if method == "per_slot_reduce":
                raise KeyError("lost")
            return 1

        def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> Any:
            raise KeyError("lost")

    context = _PyTorchReducerContext()
    context.wrap_reducer(Broken(), name="f1")
    with pytest.raises(ValueError, match=f"Broken.*{method}.*'f1'") as caught:
        context.reduce_metrics(for_training=True)
    assert isinstance(caught.value.__cause__, KeyError)


def test_tensors_become_arrays() -> None:
    context = _PyTorchReducerContext()
    weight = torch.nn.Parameter(torch.tensor(2.0))
    context.wrap_reducer(lambda values: weight * 2, name="has_gradient")
    context.wrap_reducer(lambda values: torch.tensor(1.5, dtype=torch.bfloat16), name="bf16")
    context.wrap_reducer(lambda values: [1, 2], name="plain")
    metrics = context.reduce_metrics(for_training=True)
    assert isinstance(metrics["has_gradient"], np.ndarray)
    assert metrics["has_gradient"] == 4.0
    assert metrics["bf16"].dtype == np.float32
    assert metrics["plain"] == [1, 2]


@given(values=st.lists(st.integers()), size=st.integers(1, 9))
def test_functions_see_values_in_the_order_of_the_dataset(values: list[int], size: int) -> None:
    context = _PyTorchReducerContext(lambda _: [[values[rank::size]] for rank in range(size)])
    context.wrap_reducer(lambda seen: tuple(seen), name="seen")
    assert context.reduce_metrics(for_training=True) == {"seen": tuple(values)}
