"""The base of trackers: callbacks that hand every report to another system."""

from __future__ import annotations

import abc
import dataclasses
import importlib.util
import sys
import time
import uuid
from collections.abc import Mapping
from typing import Any

from determined.pytorch._callback import PyTorchCallback
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch.callbacks._trackers.background_sender import BackgroundSender
from determined.util import is_numerical_scalar


@dataclasses.dataclass(frozen=True)
class Report:
    """The metrics of one report that are single numbers.

    `group` is `"training"` or `"validation"`, `time` seconds since 1970.
    """

    group: str
    steps_completed: int
    metrics: Mapping[str, float]
    time: float

    def named(self) -> dict[str, float]:
        """Return the metrics under the names that TensorBoard shows: validation ones with `val_`,
        unless they start with `val`.
        """
        if self.group == "training":
            return dict(self.metrics)
        return {
            name if name.startswith("val") else f"val_{name}": value
            for name, value in self.metrics.items()
        }


class MetricsTracker(PyTorchCallback, abc.ABC):
    """Passes the chief's reports to `record`; subclasses implement `open`, `record` and `close`.

    These three run in a thread of the tracker, so that training neither waits for them nor fails
    because of them: reports that come too fast are dropped, a tracker that cannot be opened or
    fails three times in a row is disabled, and one that does not finish in time when training
    ends is abandoned. Each case is logged, with the number of reports lost.

    Args:
        context: The trial's context.
        queue_size: The number of reports that may wait.
        close_seconds: How long the end of training waits for the last reports.

    Attributes:
        run_key: Names the run; a resumed run has the key of the one it continues.
        first_batch_idx: Where the run starts or continues.
    """

    def __init__(
        self,
        context: PyTorchTrialContext,
        *,
        queue_size: int = 1000,
        close_seconds: float = 30.0,
    ) -> None:
        self._context = context
        self._queue_size = queue_size
        self._close_seconds = close_seconds
        self._sender: BackgroundSender[Report] | None = None
        self._steps_completed = 0
        self._error_outside: BaseException | None = None
        self.run_key = uuid.uuid4().hex
        self.first_batch_idx = 0

    def open(self) -> None:
        """Get ready to record."""

    @abc.abstractmethod
    def record(self, report: Report) -> None:
        """Record one report."""

    def close(self, failed: bool) -> None:
        """Finish; `failed` if training ended with an exception."""

    @property
    def num_lost(self) -> int:
        """How many reports were not recorded; until training ends, some may still be."""
        return 0 if self._sender is None else self._sender.num_lost

    def on_trial_startup(self, first_batch_idx: int, checkpoint_uuid: str | None) -> None:
        """Note where the run starts."""
        self.first_batch_idx = self._steps_completed = first_batch_idx
        self._error_outside = sys.exc_info()[1]

    def on_training_start(self) -> None:
        """Start the thread."""
        if self._context.distributed.rank == 0:
            self._sender = BackgroundSender(type(self).__name__, self, self._queue_size)

    def on_training_workload_end(
        self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]
    ) -> None:
        """Hand on a training report."""
        self._steps_completed = self._context.current_train_batch() + 1
        self._put("training", avg_metrics)

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        """Hand on a validation report."""
        self._put("validation", metrics)

    def on_trial_shutdown(self) -> None:
        """Wait a while for what is left."""
        if self._sender is not None:
            failed = sys.exc_info()[1] not in (None, self._error_outside)
            self._sender.finish(failed, self._close_seconds)

    def state_dict(self) -> dict[str, Any]:
        """Return the name of the run."""
        return {"run_key": self.run_key}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue the run of the checkpoint, unless this one only borrows its weights."""
        if self.first_batch_idx > 0:
            self.run_key = state_dict["run_key"]

    def _put(self, group: str, metrics: Mapping[str, Any]) -> None:
        if self._sender is not None:
            numbers = {k: float(v) for k, v in metrics.items() if is_numerical_scalar(v)}
            self._sender.put(Report(group, self._steps_completed, numbers, time.time()))

    def _hparams(self) -> dict[str, Any]:
        return self._context._hparams or {}


def require(package: str, extra: str) -> None:
    """Raise if an optional package is not installed; do not import it yet."""
    if importlib.util.find_spec(package) is None:
        raise ImportError(
            f'This tracker needs {package}: pip install "determined-pytorch[{extra}]".'
        )
