"""Metric objects in the form of torchmetrics as reducers: their states are merged over ranks.

Known by what they can do (`update`, `compute`, `reset`, and states with a reduction each), so that
torchmetrics is needed by those alone who use it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch

from determined.pytorch._metrics.reducer import NOTHING, MetricReducer


@runtime_checkable
class MetricObject(Protocol):
    """What a `torchmetrics.Metric` or `MetricCollection` offers."""

    def update(self, *args: Any, **kwargs: Any) -> Any: ...
    def compute(self) -> Any: ...
    def reset(self) -> Any: ...


M = TypeVar("M", bound=MetricObject)


def is_metric_object(reducer: Any) -> bool:
    """Say whether this is an object of such a class that has states to merge."""
    return (
        isinstance(reducer, MetricObject)
        and not isinstance(reducer, (type, MetricReducer))
        and any(True for _ in _parts(reducer))
    )


class MetricObjectReducer(MetricReducer):
    """Gathers the states of a metric over ranks, merges them as it declares, and computes.

    The metric's own exchange between ranks is turned off: it would ask for other ranks at moments
    of its own. Ranks that had no data are left out.
    """

    def __init__(self, metric: MetricObject, device: torch.device | str = "cpu") -> None:
        self.metric = metric
        if callable(move := getattr(metric, "to", None)):
            move(device)
        for part in _parts(metric):
            part.distributed_available_fn = _alone

    def reset(self) -> None:
        """Forget all updates."""
        self.metric.reset()

    def per_slot_reduce(self) -> list[dict[str, Any]]:
        """Return the states of each part, on the CPU, and how often it was updated."""
        return [
            {
                "updates": int(getattr(part, "update_count", 1)),
                "states": {name: _on(getattr(part, name), "cpu") for name in part._reductions},
            }
            for part in _parts(self.metric)
        ]

    def cross_slot_reduce(self, per_slot_metrics: list[list[dict[str, Any]]]) -> Any:
        """Compute the metric over all ranks; this rank's own states stay as they are."""
        filled = [slot for slot in per_slot_metrics if any(part["updates"] for part in slot)]
        if not filled:
            return NOTHING
        mine = self.per_slot_reduce()
        slots = zip(*filled, strict=True)
        merged = [_merged(part, of) for part, of in zip(_parts(self.metric), slots, strict=True)]
        self.load_state_dict({"parts": merged})
        try:
            return self.metric.compute()
        finally:
            self.load_state_dict({"parts": mine})

    def state_dict(self) -> dict[str, Any]:
        """Return what was collected on this rank."""
        return {"parts": self.per_slot_reduce()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the place of what was collected on this rank."""
        for part, saved in zip(_parts(self.metric), state_dict["parts"], strict=True):
            device = getattr(part, "device", "cpu")
            for name, state in saved["states"].items():
                setattr(part, name, _on(state, device))
            part._update_count = saved["updates"]
            part._computed = None  # a result that the metric keeps would be of other states


def _parts(metric: Any) -> Iterator[Any]:
    """Yield the metrics in a metric that have states: itself, or the members of a collection."""
    modules = getattr(metric, "modules", None)
    for part in modules() if callable(modules) else [metric]:
        if isinstance(getattr(part, "_reductions", None), dict):
            yield part


def _merged(part: Any, slots: Sequence[dict[str, Any]]) -> dict[str, Any]:
    # Members of a collection may share the state of one of them; then only that one counts.
    slots = [slot for slot in slots if slot["updates"]] or slots
    if len(slots) == 1:
        return slots[0]
    states = {
        name: _reduced(reduction, [slot["states"][name] for slot in slots])
        for name, reduction in part._reductions.items()
    }
    return {"updates": sum(slot["updates"] for slot in slots), "states": states}


def _reduced(reduction: Any, states: list[Any]) -> Any:
    values: Any
    if isinstance(states[0], list):
        values = [value for state in states for value in state]
        return reduction(values) if reduction is not None and values else values
    values = torch.stack(states)
    return values if reduction is None else reduction(values)


def _alone() -> bool:
    return False


def _on(state: Any, device: Any) -> Any:
    if isinstance(state, list):
        return [_on(value, device) for value in state]
    return state.detach().to(device) if isinstance(state, torch.Tensor) else state
