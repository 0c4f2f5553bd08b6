"""The training since the last report: metrics of its batches, and what reducers have collected.

A stop in the middle of it saves it, so that the report of the resumed run is the whole segment's.
"""

from __future__ import annotations

import logging
import time
from typing import Any

import numpy as np
import torch

from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._metrics.batch_metrics import BatchMetrics
from determined.pytorch._metrics.reducer_state import (
    dump_plain,
    dump_reducers,
    load_plain,
    load_reducers,
)
from determined.pytorch._metrics.weighted import PAIRS, is_weighted
from determined.pytorch._metrics.wrapped_reducers import describe_reducer

logger = logging.getLogger("determined.pytorch")


class Segment:
    """Begins with the first batch after a report, and ends with the next report."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self._context = context
        self.metrics = BatchMetrics()
        self._began = time.monotonic()

    @property
    def is_open(self) -> bool:
        """Whether it has batches."""
        return len(self.metrics) > 0

    @property
    def seconds(self) -> float:
        """How long it has taken, in this process and in those before."""
        return time.monotonic() - self._began

    def begin(self) -> None:
        """Reset reducers and the clock, unless the segment goes on."""
        if not self.is_open:
            self._context.reset_reducers()
            self._began = time.monotonic()

    def close(self) -> None:
        """End it: its row is reported."""
        self.metrics = BatchMetrics()

    def state_dict(self) -> dict[str, Any] | None:
        """Return what the next report needs of this rank, None if no batch is open.

        What is more than plain data cannot be saved; that is said.
        """
        if not self.is_open:
            return None
        reducers = {}
        for position, registered in enumerate(self._context._wrapped_reducers):
            if registered.for_training:
                try:
                    reducers[position] = _packed(dump_reducers([registered.reducer]))
                except TypeError as error:
                    self._warn(f"the reducer {describe_reducer(registered.reducer)}", error)
        try:
            columns = self.metrics.columns()
            weighted = [name for name, column in columns.items() if is_weighted(column)]
            columns |= {name: columns[name].tolist() for name in weighted}  # type: ignore[union-attr]  # arrays
            metrics = _packed(dump_plain(columns))
        except TypeError as error:
            self._warn("its metrics", error)
            return None
        return {
            "metrics": metrics,
            "weighted": weighted,
            "length": len(self.metrics),
            "reducers": reducers,
            "seconds": self.seconds,
            "size": self._context.distributed.size,
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on with a segment that a checkpoint has."""
        size, wrapped = self._context.distributed.size, self._context._wrapped_reducers
        if saved["size"] != size:
            if self._context.distributed.rank == 0:
                logger.warning(
                    f"The next report covers only batches from here on: the segment in the "
                    f"checkpoint was trained by {saved['size']} ranks, and now there are {size}."
                )
            return
        columns = load_plain(_unpacked(saved["metrics"]))
        for name in saved.get("weighted", ()):
            columns[name] = np.array(columns[name], PAIRS)
        self.metrics = BatchMetrics.of(columns, saved["length"])
        for position, state in saved["reducers"].items():
            if position < len(wrapped):
                reducer = wrapped[position].reducer
                load_reducers([reducer], _unpacked(state), self._context.device)
        self._began = time.monotonic() - saved["seconds"]

    def _warn(self, what: str, error: Exception) -> None:
        if self._context.distributed.rank == 0:
            logger.warning(
                f"The next report will differ from an unbroken run's: of the "
                f"{len(self.metrics)} batches since the last one, {what} cannot be saved ({error})."
            )


def _packed(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _unpacked(data: torch.Tensor) -> bytes:
    return bytes(data.numpy())
