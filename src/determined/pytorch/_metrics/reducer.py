"""Reducing metrics: over batches, over ranks, by the user's own classes."""

from __future__ import annotations

import abc
import enum
import itertools
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from determined.pytorch._checks.arguments import check_flag, check_kind

logger = logging.getLogger("determined.pytorch")


class Reducer(enum.Enum):
    """How per-batch validation metrics become one number. Each batch weighs the same."""

    AVG = 1
    SUM = 2
    MAX = 3
    MIN = 4


def _simple_reduce_metrics(
    reducer: Reducer, metrics: Any, num_batches: Sequence[int] | None = None
) -> Any:
    """Reduce all elements of `metrics` to one number; AVG weighs the entries by `num_batches`."""
    if reducer == Reducer.AVG:
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

    Feed it as you like from `train_batch` or `evaluate_batch`. At the end of a segment or a
    validation each rank's `per_slot_reduce` is gathered, and `cross_slot_reduce` makes the metric
    of all of them.
    """

    @abc.abstractmethod
    def reset(self) -> None:
        """Forget everything: a new segment of training, or a new validation, begins."""

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


class _Registered(NamedTuple):
    reducer: MetricReducer
    name: str | None
    for_training: bool
    for_validation: bool

    def call(self, method: str, *args: Any) -> Any:
        """Call the user's method; its exceptions come out with the reducer's name on them."""
        try:
            return getattr(self.reducer, method)(*args)
        except Exception as e:
            raise ValueError(
                f"{_describe(self.reducer)}.{method} of metric {self.name!r} raised "
                f"{type(e).__name__}: {e}"
            ) from e


class _PyTorchReducerContext:
    """Holds the wrapped reducers and runs them over all ranks."""

    def __init__(self, allgather_fn: Callable[[Any], Iterable[Any]] = lambda x: [x]) -> None:
        self._wrapped_reducers: list[_Registered] = []
        self._allgather_fn = allgather_fn

    def wrap_reducer(
        self,
        reducer: Callable[[list[Any]], Any] | MetricReducer,
        name: str | None = None,
        for_training: bool = True,
        for_validation: bool = True,
    ) -> MetricReducer:
        """Register a reducer and return it, ready to be updated.

        Args:
            reducer: A `MetricReducer`, or a function of the list of all values. For a function the
                returned object has `update(value)`.
            name: The metric's name. Without one the reducer must return a dictionary of metrics.
            for_training: Reduce it with each report of training metrics.
            for_validation: Reduce it with each validation.
        """
        check_kind("name", name, str, "a string")
        check_flag("for_training", for_training)
        check_flag("for_validation", for_validation)
        wrapped: MetricReducer
        if isinstance(reducer, MetricReducer):
            assert all(r.reducer is not reducer for r in self._wrapped_reducers), (
                f"{type(reducer).__name__} is wrapped already; wrap a reducer object once."
            )
            wrapped = reducer
        else:
            assert callable(reducer), (
                f"`reducer` must be a function or a pytorch.MetricReducer, got {reducer!r}."
            )
            if any(getattr(r.reducer, "function", None) is reducer for r in self._wrapped_reducers):
                logger.warning(
                    f"The function {_describe(reducer)} is wrapped as a reducer twice; each of the "
                    "two keeps its own values."
                )
            wrapped = _SimpleReducer(reducer)
        if name is not None and any(r.name == name for r in self._wrapped_reducers):
            logger.warning(f"Two reducers report the metric {name!r}; the later one wins.")
        self._wrapped_reducers.append(_Registered(wrapped, name, for_training, for_validation))
        return wrapped

    def reset_reducers(self) -> None:
        """Reset all reducers. The trainer does so before each segment and each validation."""
        for registered in self._wrapped_reducers:
            registered.call("reset")

    def reduce_metrics(self, for_training: bool) -> dict[str, Any]:
        """Reduce over all ranks and return the metrics. Every rank must call it in step."""
        chosen = [
            r
            for r in self._wrapped_reducers
            if (r.for_training if for_training else r.for_validation)
        ]
        if not chosen:
            return {}
        gathered = self._allgather_fn([r.call("per_slot_reduce") for r in chosen])
        return self.run_cross_slot_reduction(chosen, list(gathered))

    def run_cross_slot_reduction(
        self, reducables: Sequence[_Registered], gathered: Sequence[Sequence[Any]]
    ) -> dict[str, Any]:
        """Make the metrics from every rank's list of intermediate values."""
        metrics: dict[str, Any] = {}
        for position, registered in enumerate(reducables):
            per_slot = [values[position] for values in gathered]
            result = registered.call("cross_slot_reduce", per_slot)
            who = _describe(registered.reducer)
            if registered.name is None:
                assert isinstance(result, dict), (
                    f"{who} was wrapped with name=None, so it must return a dictionary of "
                    "metrics, but it "
                    f"returned {type(result).__name__}. Return a dictionary or pass `name` to "
                    "wrap_reducer."
                )
                metrics.update(result)
            else:
                assert not isinstance(result, dict), (
                    f"{who} was wrapped with name={registered.name!r}, so it must return one "
                    "value, but it "
                    "returned a dict. Return one value, or wrap it with name=None."
                )
                metrics[registered.name] = result
        for name, value in metrics.items():
            if isinstance(value, torch.Tensor):
                try:
                    metrics[name] = to_numpy(value)
                except TypeError as e:
                    raise TypeError(f"The metric {name!r} of a reducer cannot be read: {e}") from e
        return metrics


def _describe(reducer: Any) -> str:
    function = getattr(reducer, "function", reducer)
    return getattr(function, "__qualname__", type(function).__name__)
