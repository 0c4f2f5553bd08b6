"""The reducers that a trial has wrapped: fed by the trial, reset and reduced by the trainer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, overload

import torch

from determined.pytorch._checks.arguments import check_flag, check_kind
from determined.pytorch._metrics.metric_object import M, MetricObjectReducer, is_metric_object
from determined.pytorch._metrics.reducer import NOTHING, MetricReducer, _SimpleReducer, to_numpy

logger = logging.getLogger("determined.pytorch")


class _Registered(NamedTuple):
    reducer: MetricReducer
    name: str | None
    for_training: bool
    for_validation: bool

    @property
    def updated(self) -> Any:
        """What the user feeds: the reducer, or the metric object behind it."""
        if isinstance(self.reducer, MetricObjectReducer):
            return self.reducer.metric
        return self.reducer

    def call(self, method: str, *args: Any) -> Any:
        """Call the user's method; its exceptions come out with the reducer's name on them."""
        try:
            return getattr(self.reducer, method)(*args)
        except Exception as e:
            raise ValueError(
                f"{describe_reducer(self.reducer)}.{method} of metric {self.name!r} raised "
                f"{type(e).__name__}: {e}"
            ) from e


class _PyTorchReducerContext:
    """Holds the wrapped reducers and runs them over all ranks."""

    device = torch.device("cpu")

    def __init__(self, allgather_fn: Callable[[Any], Iterable[Any]] = lambda x: [x]) -> None:
        self._wrapped_reducers: list[_Registered] = []
        self._allgather_fn = allgather_fn

    @overload
    def wrap_reducer(
        self,
        reducer: M,
        name: str | None = None,
        for_training: bool = True,
        for_validation: bool = True,
    ) -> M: ...
    @overload
    def wrap_reducer(
        self,
        reducer: Callable[[list[Any]], Any] | MetricReducer,
        name: str | None = None,
        for_training: bool = True,
        for_validation: bool = True,
    ) -> MetricReducer: ...
    def wrap_reducer(
        self,
        reducer: Any,
        name: str | None = None,
        for_training: bool = True,
        for_validation: bool = True,
    ) -> Any:
        """Register a reducer and return it, ready to be updated.

        Args:
            reducer: A `MetricReducer`, a metric of torchmetrics (or a collection of them), or a
                function of the list of all values. For a function the returned object has
                `update(value)`.
            name: The metric's name. Without one the reducer must return a dictionary of metrics.
            for_training: Reduce it with each report of training metrics.
            for_validation: Reduce it with each validation.
        """
        check_kind("name", name, str, "a string")
        check_flag("for_training", for_training)
        check_flag("for_validation", for_validation)
        wrapped: MetricReducer
        assert all(r.updated is not reducer for r in self._wrapped_reducers), (
            f"{type(reducer).__name__} is already wrapped; wrap each reducer only once."
        )
        if isinstance(reducer, MetricReducer):
            wrapped = reducer
        elif is_metric_object(reducer):
            wrapped = MetricObjectReducer(reducer, self.device)
        else:
            assert callable(reducer), (
                "`reducer` must be a function, a pytorch.MetricReducer or a metric of "
                f"torchmetrics, got {reducer!r}."
            )
            if any(getattr(r.reducer, "function", None) is reducer for r in self._wrapped_reducers):
                logger.warning(
                    f"The function {describe_reducer(reducer)} is wrapped as a reducer twice; each "
                    "wrapper keeps its own values."
                )
            wrapped = _SimpleReducer(reducer)
        if name is not None and any(r.name == name for r in self._wrapped_reducers):
            logger.warning(f"Two reducers report the metric {name!r}; the later one wins.")
        registered = _Registered(wrapped, name, for_training, for_validation)
        self._wrapped_reducers.append(registered)
        return registered.updated

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
            if result is NOTHING:
                continue
            who = describe_reducer(registered.reducer)
            if registered.name is None:
                assert isinstance(result, dict), (
                    f"{who} was wrapped with name=None, so it must return a dictionary of "
                    f"metrics, but it returned {type(result).__name__}. Return a dictionary or "
                    "pass `name` to wrap_reducer."
                )
                metrics.update(result)
            else:
                assert not isinstance(result, dict), (
                    f"{who} was wrapped with name={registered.name!r}, so it must return one "
                    "value, but it returned a dict. Return one value, or wrap it with name=None."
                )
                metrics[registered.name] = result
        for name, value in metrics.items():
            if isinstance(value, torch.Tensor):
                try:
                    metrics[name] = to_numpy(value)
                except TypeError as e:
                    raise TypeError(f"The metric {name!r} of a reducer cannot be read: {e}") from e
        return metrics


def describe_reducer(reducer: Any) -> str:
    """Name a reducer as the user knows it: by its class, or its function."""
    if isinstance(reducer, MetricObjectReducer):
        return type(reducer.metric).__qualname__
    function = getattr(reducer, "function", reducer)
    return getattr(function, "__qualname__", type(function).__name__)
