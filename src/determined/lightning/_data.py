"""The position in the training data, which Lightning does not restore within an epoch.

Lightning goes on from a checkpoint with a new iterator over the data: its order is another one, and
it begins at the start. So we note the random state from which the order of an epoch was drawn, and
how many of its batches are trained; a run that continues draws that order again, skips these
batches, and then goes on with the random state of the save. Batches that are skipped are made
again, so workers of the loader come to the random states that they had.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch

from determined._loops.random_state import random_state, set_random_state

_ORDER = "at_epoch"
_IS_BEFORE = "is_before_iterator"
_SAVE = "at_save"
_BATCHES = "batches_in_epoch"


class DataPosition:
    """Notes where in the data training is, saves and restores it."""

    def __init__(self) -> None:
        self.batches_in_epoch = 0
        self._order: dict[str, Any] = {}
        self._restored: dict[str, Any] | None = None
        self._is_next_known = False

    def save(self, folder: Path, rank: int) -> None:
        """Write a file of this rank into the folder of a checkpoint."""
        state = {**self._order, _SAVE: random_state(), _BATCHES: self.batches_in_epoch}
        torch.save(state, _path(folder, rank))

    def load(self, folder: Path, rank: int) -> None:
        """Read what `save` wrote, if it did."""
        path = _path(folder, rank)
        self._restored = torch.load(path, weights_only=True) if path.is_file() else None

    def resume(self, fit_loop: Any) -> None:
        """Training begins; the iterator of the epoch that it continues, or begins with, exists.

        Lightning calls no hook at the start of an epoch that it continues.
        """
        restored, self._restored = self._restored, None
        fetcher = fit_loop._data_fetcher
        if restored is None or fetcher is None or _restores_itself(fit_loop):
            return
        if restored[_BATCHES] == 0:
            set_random_state(restored[_SAVE])
            self._order, self._is_next_known = {_ORDER: random_state(), _IS_BEFORE: True}, True
            iter(fetcher)
            return
        self._order = {name: restored[name] for name in (_ORDER, _IS_BEFORE)}
        set_random_state(restored[_ORDER])
        if restored[_IS_BEFORE]:
            iter(fetcher)
        for _ in range(restored[_BATCHES]):
            next(fetcher)
        fetcher.fetched, fetcher.done = 0, False  # the loop adds what was trained
        set_random_state(restored[_SAVE])
        # It is resumable now.
        warnings.filterwarnings("ignore", message="You're resuming from a checkpoint that ended")

    def begin_epoch(self, epoch: int) -> None:
        """An epoch begins; the iterator exists already if it is the first of this process."""
        if not self._is_next_known:
            self._order = {_ORDER: random_state(), _IS_BEFORE: epoch > 0}
        self._is_next_known = False


def _restores_itself(fit_loop: Any) -> bool:
    """Whether the loaders have states, which Lightning saves and loads."""
    loaders = getattr(fit_loop._combined_loader, "flattened", [])
    return any(hasattr(loader, "load_state_dict") for loader in loaders)


def _path(folder: Path, rank: int) -> Path:
    return folder / f"det_random_{rank}.pth"
