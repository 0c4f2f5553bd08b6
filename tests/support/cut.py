"""Read training data as a trial would, in one go or in several processes' worth of pieces."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from determined.pytorch._data.seed import rng_state, seed_everything, set_rng_state
from determined.pytorch._data.training.opening import open_training_data
from determined.pytorch._data.training.training_data import TrainingData

Build = Callable[[], Any]


def opened(
    loader: Any,
    start: int = 0,
    saved: dict[str, Any] | None = None,
    *,
    rank: int = 0,
    size: int = 1,
    seed: int = 1,
) -> TrainingData:
    return open_training_data(loader, seed=seed, rank=rank, size=size, start=start, saved=saved)


def as_lists(batch: Any) -> Any:
    """Return a batch in a form that compares exactly."""
    if isinstance(batch, torch.Tensor):
        return batch.tolist()
    return [as_lists(item) for item in batch] if isinstance(batch, (list, tuple)) else batch


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    """Return what a checkpoint gives back."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file, weights_only=True)
    return loaded


def trained(
    build: Build,
    total: int,
    cuts: Iterable[int] = (),
    *,
    rank: int = 0,
    size: int = 1,
    after_batch: Callable[[Any, list[Any]], None] | None = None,
) -> list[Any]:
    """Train `total` batches in as many processes as the cuts ask for, as a trial would."""
    seen: list[Any] = []
    saved = None
    generators = None
    for attempt, end in enumerate([*sorted(cuts), total]):
        seed_everything(100)
        loader = build()
        data = opened(loader, len(seen), saved, rank=rank, size=size)
        if generators is None:
            seed_everything(7)
        else:
            torch.rand(attempt)
            set_rng_state(generators)
        while len(seen) < end:
            seen.append(as_lists(next(data)))
            torch.rand(2), np.random.rand(), random.random()  # the model's own draws
            if after_batch is not None:
                after_batch(loader, seen)
        saved, generators = through_a_file(data.state_dict(len(seen))), rng_state()
        data.close()
    return seen
