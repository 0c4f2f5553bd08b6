"""Metrics that are means over tokens or samples: sums and weights are added up, then divided."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np
import torch

from determined.pytorch._metrics.reducer import NOTHING, MetricReducer, to_numpy

# A column of weighted metrics: sums and weights of each batch.
PAIRS = np.dtype([("total", np.float64), ("weight", np.float64)])


@dataclasses.dataclass(frozen=True)
class Weighted:
    """A metric of `train_batch` or `evaluate_batch` that is a mean: `total` divided by `weight`.

    A report or validation has the sum of totals over batches and ranks divided by the sum of
    weights, so that each token counts alike. Tensors are read when they are reported.
    """

    total: torch.Tensor | float
    weight: torch.Tensor | float

    def __post_init__(self) -> None:
        for name, value in (("total", self.total), ("weight", self.weight)):
            if isinstance(value, torch.Tensor):
                if value.numel() != 1 or value.is_complex():
                    raise ValueError(f"`{name}` must be one number, got {value!r}.")
            elif not isinstance(value, (int, float, np.number)):
                raise TypeError(f"`{name}` must be a number, got {value!r}.")

    def __float__(self) -> float:
        """Return the mean of this batch alone, NaN if nothing has a weight in it."""
        total, weight = _read(self.total), _read(self.weight)
        return total / weight if weight else math.nan

    def detached(self) -> Weighted:
        """Return the same numbers without what they were computed from; those of the CPU, read."""
        return Weighted(_detached(self.total), _detached(self.weight))


def _read(value: torch.Tensor | float) -> float:
    return value.item() if isinstance(value, torch.Tensor) else float(value)


def _detached(value: torch.Tensor | float) -> torch.Tensor | float:
    if not isinstance(value, torch.Tensor):
        return value
    return value.item() if value.is_cpu else value.detach().clone()


def is_weighted(column: object) -> TypeGuard[np.ndarray]:
    """Say whether a column has sums and weights."""
    return isinstance(column, np.ndarray) and column.dtype == PAIRS


def pairs(values: Sequence[Any]) -> np.ndarray:
    """Make a column of weighted metrics; all of its values must be such."""
    for value in values:
        if not isinstance(value, Weighted):
            raise TypeError(
                f"it is a pytorch.Weighted in some batches and {type(value).__name__} in others"
            )
    column = np.empty(len(values), PAIRS)
    column["total"] = _numbers([value.total for value in values])
    column["weight"] = _numbers([value.weight for value in values])
    return column


def _numbers(values: Sequence[Any]) -> Any:
    if values and all(isinstance(value, torch.Tensor) for value in values):
        return to_numpy(torch.stack([value.reshape(()) for value in values]))
    return list(map(_read, values))


def summed(column: np.ndarray) -> Weighted:
    """Add up all batches."""
    return Weighted(float(column["total"].sum()), float(column["weight"].sum()))


def means(column: np.ndarray) -> np.ndarray:
    """Return the mean of each batch, NaN for those in which nothing has a weight."""
    result = np.full(len(column), math.nan)
    has_weight = column["weight"] != 0
    np.divide(column["total"], column["weight"], out=result, where=has_weight)
    return result


def joined(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Add up the sums and weights of each batch over ranks."""
    length = min(map(len, columns))
    result = np.zeros(length, PAIRS)
    for name in ("total", "weight"):
        for column in columns:
            result[name] += column[name][:length]
    return result


class Perplexity(MetricReducer):
    """The perplexity over all tokens: the exponential of their mean loss.

    Wrap it with `context.wrap_reducer(pytorch.Perplexity(), "perplexity")`, and call `update` with
    the sum of the losses of a batch, in nats, and the number of tokens.
    """

    def __init__(self) -> None:
        self.total: torch.Tensor | float = 0.0
        self.weight: torch.Tensor | float = 0.0

    def reset(self) -> None:
        """Forget all tokens."""
        self.total = self.weight = 0.0

    def update(self, total: torch.Tensor | float, weight: torch.Tensor | float) -> None:
        """Add the losses of `weight` tokens, whose sum is `total`; no device is waited for."""
        added = Weighted(total, weight)
        self.total = self.total + _exact(added.total)
        self.weight = self.weight + _exact(added.weight)

    def per_slot_reduce(self) -> tuple[float, float]:
        """Return the sums of this rank."""
        return float(self.total), float(self.weight)

    def cross_slot_reduce(self, per_slot_metrics: list[tuple[float, float]]) -> Any:
        """Return the perplexity; infinity if it is too large for a number, nothing if no token."""
        total, weight = (sum(sums) for sums in zip(*per_slot_metrics, strict=True))
        if not weight:
            return NOTHING
        try:
            return math.exp(total / weight)
        except OverflowError:
            return math.inf


def _exact(value: torch.Tensor | float) -> torch.Tensor | float:
    if not isinstance(value, torch.Tensor) or value.is_cpu:
        return _read(value)
    return value.detach() if value.device.type == "mps" else value.detach().double()
