"""What torch's `default_collate` returns, sooner for the samples that most datasets give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.data import default_collate, get_worker_info
from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map

_TYPES = ({torch.Tensor}, {int})


def quickest(collate_fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that makes the same batches as `collate_fn`."""
    return collate if collate_fn is default_collate else collate_fn


def collate(samples: list[Any]) -> Any:
    """Make a batch of samples as `default_collate` does, which asks a lot about every value.

    For tuples of plain tensors and integers the answers are known. All other samples, and
    errors, are left to it; so are workers, where it puts tensors into shared memory.
    """
    if type(samples[0]) is tuple and get_worker_info() is None:
        try:
            columns = list(zip(*samples, strict=True))
            if all(map(_is_plain, columns)):
                return [_stacked(column) for column in columns]
        except (RuntimeError, ValueError):  # lengths or shapes differ, a number is too large
            pass
    return default_collate(samples)


def _is_plain(column: Sequence[Any]) -> bool:
    if set(map(type, column)) not in _TYPES:
        return False
    first = column[0]
    return type(first) is int or (
        first.layout is torch.strided
        and not first.is_nested
        # Users may register a function of their own for tensors.
        and default_collate_fn_map[torch.Tensor] is collate_tensor_fn
    )


def _stacked(column: Sequence[Any]) -> torch.Tensor:
    return torch.tensor(column) if type(column[0]) is int else torch.stack(column)  # type: ignore[arg-type]  # a tuple of tensors
