"""Turns metric reports into calls of any scalar writer."""

from __future__ import annotations

import abc
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from determined.tensorboard._series import Series, training_series, validation_series


class MetricWriter(abc.ABC):
    """Writes scalars somewhere TensorBoard can read them."""

    @abc.abstractmethod
    def add_scalar(self, name: str, value: float, step: int) -> None:
        """Write one point."""

    @abc.abstractmethod
    def reset(self) -> None:
        """End the current file; the next point starts a new one."""

    @abc.abstractmethod
    def flush(self) -> None:
        """Put everything written so far on disk."""


class BatchMetricWriter:
    """Writes whole reports through a `MetricWriter`.

    Files are ended at most once a second, so that what was uploaded need not be uploaded again.
    """

    def __init__(self, writer: MetricWriter) -> None:
        self.writer = writer
        self._flushed_second = int(time.time())

    def on_train_step_end(
        self,
        steps_completed: int,
        metrics: Mapping[str, Any],
        batch_metrics: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Write batch metrics at their own steps, and averages that have no batch metric."""
        self._write(training_series(steps_completed, metrics, batch_metrics))

    def on_validation_step_end(self, steps_completed: int, metrics: Mapping[str, Any]) -> None:
        """Write validation metrics, under names that start with `val`."""
        self._write(validation_series(steps_completed, metrics))

    def _write(self, report: Iterable[Series]) -> None:
        if int(time.time()) > self._flushed_second:
            self.writer.reset()
        for tag, values, steps in report:
            for value, step in zip(values, steps, strict=True):
                self.writer.add_scalar(tag, value, step)
        self.writer.flush()
        self._flushed_second = int(time.time())
