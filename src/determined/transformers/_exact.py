"""Random numbers of the data, restored where the trainer itself restores them too late.

The trainer saves the random states at the end of a step and sets them again once the first batch
after a resume is there. Whatever drew random numbers to make that batch drew others: a sampler that
shuffles with the global generator, an augmentation, the masks of a collator. And the loader is one
batch ahead, so the next batch was in part made before the save, and in part after it. So we note

    the state at the beginning of the epoch     set again before the sampler draws its order
    the state before the newest batch was made  set again before that batch is made

and set the state of the save before the batch after that. All of it concerns batches that are made
in this process (`dataloader_num_workers=0`, the default); nothing of it changes an unbroken run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset

from determined._loops.random_state import random_state, set_random_state

_EPOCH = "at_epoch"
_BATCH = "before_newest_batch"
_SAVE = "at_save"
_MADE = "batches_made"


def trust_numpy_states() -> None:
    """Let `torch.load` read numpy's random state, an array, in a checkpoint of the trainer.

    From 2.6 on torch refuses what it was not told to trust, and old releases of transformers 4
    do not tell it.
    """
    array = np.zeros(1, np.uint32)
    build: Any = array.__reduce__()[0]  # as in the file, whatever this numpy calls it
    torch.serialization.add_safe_globals([build, np.ndarray, np.dtype, type(array.dtype)])


class DataRandomness:
    """Notes the random states that the training data depends on, saves and restores them."""

    def __init__(self) -> None:
        self._states: dict[str, Any] = {}
        self._restored: dict[str, Any] = {}
        self._is_first_epoch = True
        self._after_first_batches: Any = None
        self._collate: tuple[Any, Any] | None = None

    def watch(self, loader: Any, *, is_over: bool) -> None:
        """Watch the loader from now on; with `is_over` it has no batches."""
        base = getattr(loader, "base_dataloader", loader)
        sampler = getattr(base, "batch_sampler", None)
        if sampler is None or isinstance(getattr(base, "dataset", None), IterableDataset):
            return
        if isinstance(sampler, _WatchedSampler):
            sampler = sampler._inner
        is_here = getattr(base, "num_workers", 0) == 0
        watched = _WatchedSampler(sampler, self._before_batch if is_here else None, is_over)
        # The loader refuses this by its own __setattr__: it must not change while it is iterated.
        object.__setattr__(base, "batch_sampler", watched)
        if is_here and _BATCH in self._restored:
            self._collate = (base, base.collate_fn)
            base.collate_fn = _Noting(base.collate_fn, self._after_batch)

    def load(self, checkpoint: Path, rank: int) -> None:
        """Read what `save` wrote, if it did."""
        path = _path(checkpoint, rank)
        self._restored = torch.load(path, weights_only=True) if path.is_file() else {}

    def save(self, checkpoint: Path, rank: int) -> None:
        """Write the states into the folder of a checkpoint, which is within an epoch."""
        torch.save({**self._states, _SAVE: random_state()}, _path(checkpoint, rank))

    def begin_epoch(self) -> None:
        """An epoch begins: its order is about to be drawn."""
        if self._is_first_epoch and _EPOCH in self._restored:
            set_random_state(self._restored[_EPOCH])
        self._is_first_epoch = False
        self._states = {_EPOCH: random_state()}

    def begin_step(self) -> None:
        """The batches of a step are there, and the trainer has set the random states."""
        if self._after_first_batches is not None:
            set_random_state(self._after_first_batches)
            self._after_first_batches = None
        if self._collate is not None:
            base, collate_fn = self._collate
            base.collate_fn = collate_fn  # of loaders that are made from now on
            self._collate = None
        self._restored = {}

    def _before_batch(self, batch_idx: int) -> None:
        made = self._restored.get(_MADE, 0)
        if made and batch_idx < made - 1:
            return  # trained before the save: it is skipped
        if made and batch_idx <= made:
            set_random_state(self._restored[_BATCH if batch_idx < made else _SAVE])
        self._states |= {_BATCH: random_state(), _MADE: batch_idx + 1}

    def _after_batch(self) -> None:
        if self._states[_MADE] > self._restored.get(_MADE, 0):  # else that of the save is right
            self._after_first_batches = random_state()


class _WatchedSampler:
    """A batch sampler that tells when the next batch is about to be made."""

    def __init__(
        self, inner: Any, before_batch: Callable[[int], None] | None, is_over: bool
    ) -> None:
        self._inner = inner
        self._before_batch = before_batch
        self._is_over = is_over

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_inner"], name)

    def __len__(self) -> int:
        return len(self._inner)

    def __iter__(self) -> Iterator[Any]:
        if self._is_over:
            return
        for batch_idx, indices in enumerate(self._inner):
            if self._before_batch is not None:
                self._before_batch(batch_idx)
            yield indices


class _Noting:
    """A collate function that tells when a batch is made."""

    def __init__(self, inner: Callable[[Any], Any], after: Callable[[], None]) -> None:
        self._inner = inner
        self._after = after

    def __call__(self, samples: Any) -> Any:
        batch = self._inner(samples)
        self._after()
        return batch


def _path(checkpoint: Path, rank: int) -> Path:
    return checkpoint / f"det_random_{rank}.pth"
