"""Scalars that callbacks write to TensorBoard, under tags of their own."""

from __future__ import annotations

from collections.abc import Sequence

from numpy.typing import ArrayLike

from determined.pytorch._context.context import PyTorchTrialContext
from determined.tensorboard._events import ScalarEvents


class ChiefScalars:
    """Writes on the chief; the other ranks write nothing. The file is made at the first point."""

    def __init__(self, context: PyTorchTrialContext, suffix: str) -> None:
        self._context = context
        self._suffix = suffix
        self._events: ScalarEvents | None = None

    def add(self, tag: str, values: ArrayLike, steps: Sequence[int]) -> None:
        """Add the points of one tag."""
        if self._context.distributed.rank != 0:
            return
        if self._events is None:
            self._events = ScalarEvents(self._context.get_tensorboard_path(), self._suffix)
        self._events.add(tag, values, steps)

    def close(self) -> None:
        """Write what is left."""
        if self._events is not None:
            self._events.close()
