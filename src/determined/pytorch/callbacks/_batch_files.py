"""Batches written to files, for someone to find out what was wrong with them."""

from __future__ import annotations

import logging
import os
import pathlib
from typing import Any

import torch

logger = logging.getLogger("determined.pytorch")

_MAX_FILES = 20


class BatchFiles:
    """Holds the batches of one update, and writes them to `directory` if that is asked for.

    If a file cannot be written, or there are enough of them, training continues.
    """

    def __init__(self, directory: str | os.PathLike[str] | None, rank: int) -> None:
        self._directory = None if directory is None else pathlib.Path(directory)
        self._rank = rank
        self._held: list[tuple[int, int, Any]] = []
        self._num_files = 0

    def hold(self, epoch_idx: int, batch_idx: int, batch: Any) -> None:
        """Hold a batch until the update that it is part of."""
        if self._directory is not None:
            self._held.append((epoch_idx, batch_idx, batch))

    def let_go(self) -> None:
        """Forget the batches held."""
        self._held = []

    def write(self, metrics: dict[str, Any]) -> None:
        """Write the batches held; `metrics` are those of the last one."""
        for epoch_idx, batch_idx, batch in self._held:
            if self._directory is None or self._num_files >= _MAX_FILES:
                return
            self._num_files += 1
            file = self._directory / f"batch_{batch_idx}_rank_{self._rank}.pt"
            is_last = batch_idx == self._held[-1][1]
            content = {
                "epoch_idx": epoch_idx,
                "batch_idx": batch_idx,
                "batch": batch,
                "metrics": _detached(metrics) if is_last else {},
            }
            try:
                self._directory.mkdir(parents=True, exist_ok=True)
                torch.save(content, file)
                logger.info(f"Saved batch {batch_idx} to {file}.")
            except Exception as e:  # whatever pickling a user's batch may raise
                logger.warning(f"Batch {batch_idx} could not be saved to {file}: {e}")


def _detached(metrics: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.detach() if isinstance(value, torch.Tensor) else value
        for name, value in metrics.items()
    }
