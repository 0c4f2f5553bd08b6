"""Reducing metrics: over batches, over ranks, by the user's own classes and functions."""

from __future__ import annotations

import abc
import enum
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

# What a reducer returns that has seen no data, so that there is nothing to report.
NOTHING = object()


class Reducer(enum.Enum):
    """How per-batch validation metrics are reduced to one number.

    With `AVG` each batch has the same weight, even a short last one. With `SAMPLE_AVG` each sample
    has: a batch is weighted by `get_batch_length`, on any number of ranks.
    """

    AVG = 1
    SUM = 2
    MAX = 3
    MIN = 4
    SAMPLE_AVG = 5


def _simple_reduce_metrics(
    reducer: Reducer, metrics: Any, num_batches: Sequence[int] | None = None
) -> Any:
    """Reduce all elements of `metrics` to one number; averages weigh entries by `num_batches`."""
    if reducer in (Reducer.AVG, Reducer.SAMPLE_AVG):
        if num_batches is not None and len(metrics) != len(num_batches):
            raise RuntimeError(
                f"Got {len(metrics)} metrics and {len(num_batches)} batch counts; they must match."
            )
        return np.average(metrics, weights=num_batches)
    if reducer == Reducer.SUM:
        return np.sum(metrics)
    if reducer == Reducer.MAX:
        return np.max(metrics)
    if reducer == Reducer.MIN:
        return np.min(metrics)
    # Not a gap: the type that the original raises for what is no Reducer.
    raise NotImplementedError(f"No such reducer: {reducer!r}.")


def to_numpy(value: torch.Tensor) -> np.ndarray:
    """Copy a tensor to numpy; types that numpy lacks become float32."""
    value = value.detach()
    if value.is_meta:
        raise TypeError("a tensor on the device 'meta' has no values")
    if value.layout is not torch.strided:
        value = value.to_dense()
    if value.dtype is torch.complex32:
        value = value.to(torch.complex64)
    if value.dtype == torch.bfloat16 or value.dtype.itemsize == 1 and value.is_floating_point():
        value = value.float()
    return value.cpu().numpy()


class MetricReducer(metaclass=abc.ABCMeta):
    """A metric over many batches and ranks, such as an F1 score.

    Update it from `train_batch` or `evaluate_batch` in any way. At the end of a segment or a
    validation each rank's `per_slot_reduce` is gathered, and `cross_slot_reduce` combines them
    into the metric.
    """

    @abc.abstractmethod
    def reset(self) -> None:
        """Reset: a new training segment or validation begins."""

    @abc.abstractmethod
    def per_slot_reduce(self) -> Any:
        """Return this rank's intermediate value; it must be picklable."""

    @abc.abstractmethod
    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> Any:
        """Return the metric from the intermediate values of all ranks, in rank order."""


class _SimpleReducer(MetricReducer):
    """Collects values and hands all of them, in dataset order, to one function."""

    def __init__(self, function: Callable[[list[Any]], Any]) -> None:
        self.function = function
        self.values: list[Any] = []

    def reset(self) -> None:
        self.values = []

    def update(self, value: Any) -> None:
        """Add a value, usually once per batch."""
        self.values.append(value)

    def per_slot_reduce(self) -> Any:
        return self.values

    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> Any:
        missing = object()
        rounds = itertools.zip_longest(*per_slot_metrics, fillvalue=missing)
        return self.function([v for dealt in rounds for v in dealt if v is not missing])
