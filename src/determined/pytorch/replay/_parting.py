"""Where two runs part: the batch, the stage that made the difference, its tensor and its size."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch

from determined.pytorch.verify_resume._messages import listed, where
from determined.pytorch.verify_resume._trace import Event

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

# What a run does that the other one does not, by the stage that only it has.
_DEEDS = {
    "forward": "computes another loss",
    "backward": "computes another gradient",
    "before step": "steps an optimizer",
    "step": "steps an optimizer",
    "scheduler": "steps a scheduler",
    "before validation": "validates",
    "before": "trains on",
}
_WITHIN = ("forward", "backward", "before step", "step", "scheduler")


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


def is_within(stage: str) -> bool:
    """Whether a stage is part of training a batch, and no mere look at it."""
    return stage in _WITHIN


def only_one(one: Event, two: Event) -> tuple[Event, str]:
    """Return the stage that only one of two runs has, and say so."""
    places = [(event["batch"], not is_within(event["stage"])) for event in (one, two)]
    is_first = places[0] <= places[1]
    mine, who, other = (one, "first", "second") if is_first else (two, "second", "first")
    does = _DEEDS.get(mine["stage"], "goes on")
    return mine, f"in batch {mine['batch']} the {who} run {does}, the {other} does not"


def describe(one: Event, two: Event, names: list[str]) -> str:
    """Say where a stage of both runs differs, and in what besides the first name."""
    if one["samples"] != two["samples"]:
        first, second = one["samples"] or [], two["samples"] or []
        pairs = enumerate(zip(first, second, strict=False))
        at = next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))
        return (
            f"from position {at} on, the first run has the samples {listed(first[at:])}, the "
            f"second {listed(second[at:])}"
        )
    if names[0].startswith("batch") and one["samples"]:
        return f"the same samples ({listed(one['samples'])}) have other content"
    rest = f", together with {listed(names[1:])}" if names[1:] else ""
    return f"first seen {where(one)}{rest}"


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
