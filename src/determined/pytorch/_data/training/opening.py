"""Where training batches come from: one function for every kind of loader."""

from __future__ import annotations

import logging
from typing import Any

from torch.utils.data import IterableDataset

from determined.pytorch._data.batches import DataLoader
from determined.pytorch._data.fetch import draw_base_seed
from determined.pytorch._data.training.custom_loader import CustomLoaderData
from determined.pytorch._data.training.iterable_style import IterableStyleData
from determined.pytorch._data.training.map_style import MapStyleData
from determined.pytorch._data.training.training_data import Origin, TrainingData
from determined.pytorch._instrumentation.observer import UNOBSERVED, Observer

logger = logging.getLogger("determined.pytorch")


def open_training_data(
    loader: Any,
    *,
    seed: int,
    rank: int,
    size: int,
    start: int,
    saved: dict[str, Any] | None,
    observer: Observer = UNOBSERVED,
) -> TrainingData:
    """Open a loader for training at this rank's batch `start`.

    Args:
        loader: A package `DataLoader`, or any object that can be iterated.
        seed: The trial's seed: the same on all ranks.
        rank: This rank.
        size: Number of ranks.
        start: Batches that each rank has trained.
        saved: What `state_dict(start)` returned, on any rank and at any world size. An iterable
            dataset that shards itself needs its own rank's.
        observer: Sees which samples make a batch.
    """
    origin = Origin(seed, rank, size, start, saved, observer)
    if not isinstance(loader, DataLoader):
        return CustomLoaderData(loader, origin)
    if not loader.extras.get("in_order", True):
        logger.warning("`in_order=False` has no effect on training: resuming needs a fixed order.")
    if loader.generator is None:
        # Torch's loader does so at each `iter()`: models see the same draws as in a plain loop.
        draw_base_seed(None)
    if isinstance(loader.dataset, IterableDataset):
        return IterableStyleData(loader, origin)
    return MapStyleData(loader, origin)
