"""Samples that are fetched in this process, or in workers: their random numbers have two sources.

In this process they come from its own generators, in workers from seeds of each batch. A run that
changes from one to the other sees the same samples, with other augmentations.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset

from determined.pytorch._data.seed import forked_rng


def other_draws(saved: Mapping[str, Any] | None, training_data: Any) -> list[str]:
    """Say in words if samples draw random numbers, and get them from elsewhere than before."""
    loader = getattr(training_data, "_loader", None)
    then, now = (saved or {}).get("num_workers"), getattr(loader, "num_workers", None)
    if then is None or now is None or bool(then) == bool(now) or not _draws(loader):
        return []
    return [
        f"num_workers {now} instead of {then}, so random numbers drawn for samples come from other "
        "generators"
    ]


def _draws(loader: Any) -> bool:
    """Try one sample, of a copy of the dataset that leaves its counters alone."""
    if isinstance(loader.dataset, IterableDataset):
        return False  # what changes with the workers of a stream is said where it is opened
    with forked_rng(0):
        before = _state()
        try:
            loader.collate_fn([copy.copy(loader.dataset)[0]])
        except Exception:  # no such key, say: nobody knows
            return True
        return _state() != before


def _state() -> tuple[Any, ...]:
    _, words, position, *_ = np.random.get_state()
    return (
        random.getstate(),
        (np.asarray(words).tobytes(), position),
        torch.get_rng_state().numpy().tobytes(),
    )
