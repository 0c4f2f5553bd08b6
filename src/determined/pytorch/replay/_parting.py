"""Where two runs part: the batch, the stage that made the difference, its tensor and its size."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch

# By the name of what differs.
_STAGES = {
    "batch": "data",
    "loss": "loss",
    "metric": "loss",
    "gradient": "gradient",
    "optimizer": "optimizer",
    "learning rate": "optimizer",
    "the scaler": "optimizer",
    "scheduler": "scheduler",
    "weight": "weights",
    "requires_grad": "weights",
    "the mode": "weights",
    "callback": "callback",
    "the random state": "random state",
}
# By the stage that has just ended, whatever it changed.
_MADE_BY = {
    "backward": "gradient",
    "before step": "optimizer",
    "step": "optimizer",
    "scheduler": "scheduler",
    "fetching": "data",
    "forward": "loss",
}
# What these stages do is their own; all else that they find was changed by somebody else.
_OWN = {
    "step": ("weight", "optimizer"),
    "scheduler": ("optimizer", "scheduler", "learning rate"),
}


@dataclasses.dataclass(frozen=True)
class Parting:
    """The first difference of two runs. `others` are the names of what else differs there."""

    batch: int
    stage: str
    text: str
    name: str
    others: list[str]
    size: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return it for the report."""
        return dataclasses.asdict(self)


def stage_of(event: str, name: str) -> str:
    """Return the stage that made a difference, by where it was seen and by what differs."""
    if not name:
        return _MADE_BY.get(event, "callback")
    own = _OWN.get(event, ())
    if name.startswith(own):
        return _MADE_BY[event]
    if event.startswith("on_") and not name.startswith("the random state"):
        return "callback"
    return next((stage for what, stage in _STAGES.items() if name.startswith(what)), "weights")


def size_of(one: Any, two: Any) -> str:
    """Say how large the difference of two values is."""
    if not isinstance(one, torch.Tensor) and not isinstance(two, torch.Tensor):
        return f"{_shown(one)} and {_shown(two)}"
    if not isinstance(one, torch.Tensor) or not isinstance(two, torch.Tensor):
        return f"{_shape(one)} and {_shape(two)}"
    if one.dtype != two.dtype or one.shape != two.shape:
        return f"{_shape(one)} and {_shape(two)}"
    a, b = (tensor.detach().cpu().to_dense().to(torch.float64).numpy() for tensor in (one, two))
    differs = ~((a == b) | (np.isnan(a) & np.isnan(b)))
    largest = float(np.nanmax(np.abs(a - b), initial=0.0))
    if a.size == 1:
        return f"{a.item()!r} and {b.item()!r}, {largest:.3g} apart"
    return f"{int(differs.sum())} of {a.size} elements, at most {largest:.3g} apart"


def _shown(value: Any) -> str:
    return "nothing" if value is None else repr(value)[:80]


def _shape(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return _shown(value)
    return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
