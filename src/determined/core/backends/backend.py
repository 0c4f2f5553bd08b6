"""Where the contexts of core send reports and read instructions.

A context never asks whether it runs under a platform: it is given another backend.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from determined.core._enums import EarlyExitReason
from determined.core.backends.best import Best

logger = logging.getLogger("determined.core")

TRAINING = "training"
VALIDATION = "validation"

Selector = Callable[[Path], bool]
Mangler = Callable[[Path, int], Path]


@dataclass(frozen=True)
class RunDescription:
    """A run that the platform did not start; `continues` is the checkpoint that it resumes from."""

    run_id: str | None = None
    hparams: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    continues: str | None = None
    steps_completed: int = 0
    forked_at: int | None = None
    """The batch at which it branches off from the run whose checkpoint it continues."""
    metric: str | None = None
    smaller_is_better: bool = True
    is_trial_run: bool = False
    """A quick try, which is not worth recording."""


class Backend(Protocol):
    """The services that surround a training process. Arguments were checked by the contexts."""

    restarts_trials: bool
    """Whether a supervisor reads our exit code: then InvalidHP exits with status 0."""

    def report_metrics(
        self,
        group: str,
        steps_completed: int,
        metrics: dict[str, Any],
        batch_metrics: Sequence[dict[str, Any]] | None = None,
    ) -> None: ...

    def report_system_metrics(self, group: str, metrics: dict[str, Any]) -> None: ...

    def recent_system_metrics(self) -> list[tuple[str, dict[str, Any]]]:
        """The newest of these reports, with their groups."""

    def report_progress(self, progress: float) -> None: ...

    def set_status(self, status: str) -> None: ...

    def report_early_exit(self, reason: EarlyExitReason) -> None:
        """Any rank may call this; the first reason counts."""

    def set_best_tracking(
        self, metric: str | None, smaller_is_better: bool, best: float | None = None
    ) -> None:
        """A run starts: which validation metric decides what is best, and the best value so far."""

    def deciding_metric(self) -> str | None:
        """The validation metric that decides what is best, if one does."""

    def best_validation(self) -> float | None:
        """The best value so far, over all trials of the experiment."""

    def own_best(self) -> float | None:
        """The best value of this trial so far."""

    def is_best(self, metrics: Mapping[str, Any]) -> bool:
        """Whether a validation, not reported yet, is better than all of this trial before."""

    def last_validation(self) -> int | None:
        """`steps_completed` of the newest validation."""

    def before_save(self, storage_id: str, metadata: dict[str, Any]) -> None:
        """A checkpoint is about to be published.

        Return when all that was reported is on disk: a run that resumes does not repeat it.
        """

    def report_checkpoint(self, record: dict[str, Any]) -> None: ...

    def checkpoint_deleted(self, storage_id: str) -> None: ...

    def upload_tensorboard_files(
        self, directory: Path, selector: Selector, mangler: Mangler
    ) -> None: ...

    def set_tensorboard_folder(self, directory: Path) -> None:
        """Where event files of this run will be; known before the first report."""

    def request_preemption(self) -> None:
        """Ask the training of this process to stop as soon as it can; any thread may."""

    def should_preempt(self) -> bool:
        """Cheap: called for every batch."""

    def acknowledge_preemption(self) -> None: ...

    def get_metadata(self) -> dict[str, Any] | None: ...

    def set_metadata(self, metadata: dict[str, Any]) -> dict[str, Any] | None: ...

    def alert(self, title: str | None, description: str | None, level: str) -> None: ...

    def report_task_using(self, kind: str, identifier: str) -> None:
        """This task works with a stored checkpoint or model version."""

    def describe_run(self, description: RunDescription) -> None:
        """Training begins; a platform that started it knows all this."""

    def report_environment(
        self, environment: Mapping[str, Any], differences: Sequence[str]
    ) -> None:
        """What training computes with, and how that differs from where it was saved."""

    def note_end(self, error: BaseException | None, signal_number: int | None) -> None:
        """How training ended; `close` follows."""

    def close(self) -> None:
        """Send what is still pending."""


class LocalBackend:
    """A run on its own: reports become log lines, the rest is kept in memory."""

    restarts_trials = False

    def __init__(self) -> None:
        self._system_metrics: deque[tuple[str, dict[str, Any]]] = deque(maxlen=1000)
        self._is_preemption_requested = False
        self._metadata: dict[str, Any] = {}
        self._early_exit: EarlyExitReason | None = None
        self._best = Best()
        self._last_validation: int | None = None

    def report_metrics(
        self,
        group: str,
        steps_completed: int,
        metrics: dict[str, Any],
        batch_metrics: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        if group in (TRAINING, VALIDATION):
            call = f"report_{group}_metrics("
        else:
            call = f"report_metrics(group={group!r}, "
        logger.info("%ssteps_completed=%d, metrics=%s)", call, steps_completed, _Readable(metrics))
        if group == VALIDATION:
            self._last_validation = steps_completed
            self._best.note(metrics)

    def report_system_metrics(self, group: str, metrics: dict[str, Any]) -> None:
        logger.debug("%s: %s", group, metrics)
        self._system_metrics.append((group, metrics))

    def recent_system_metrics(self) -> list[tuple[str, dict[str, Any]]]:
        return list(self._system_metrics)

    def report_progress(self, progress: float) -> None:
        logger.info("report_progress(progress=%.6g)", progress)

    def set_status(self, status: str) -> None:
        logger.info("status: %s", status)

    def report_early_exit(self, reason: EarlyExitReason) -> None:
        if self._early_exit is None:
            self._early_exit = reason
            logger.info("report_early_exit(reason=%s)", reason.name)

    def set_best_tracking(
        self, metric: str | None, smaller_is_better: bool, best: float | None = None
    ) -> None:
        self._best = Best(metric, smaller_is_better, best)
        self._last_validation = None

    def deciding_metric(self) -> str | None:
        return self._best.metric

    def best_validation(self) -> float | None:
        return self._best.value

    def own_best(self) -> float | None:
        return self._best.value

    def is_best(self, metrics: Mapping[str, Any]) -> bool:
        return self._best.is_beaten_by(metrics)

    def last_validation(self) -> int | None:
        return self._last_validation

    def before_save(self, storage_id: str, metadata: dict[str, Any]) -> None:
        pass

    def report_checkpoint(self, record: dict[str, Any]) -> None:
        logger.debug("report_checkpoint(%s)", record)

    def checkpoint_deleted(self, storage_id: str) -> None:
        logger.debug("checkpoint_deleted(storage_id=%r)", storage_id)

    def upload_tensorboard_files(
        self, directory: Path, selector: Selector, mangler: Mangler
    ) -> None:
        logger.debug("upload_tensorboard_files: the files stay in %s", directory)

    def set_tensorboard_folder(self, directory: Path) -> None:
        pass

    def request_preemption(self) -> None:
        self._is_preemption_requested = True

    def should_preempt(self) -> bool:
        return self._is_preemption_requested

    def acknowledge_preemption(self) -> None:
        logger.debug("acknowledge_preemption_signal()")

    def get_metadata(self) -> dict[str, Any] | None:
        return dict(self._metadata)

    def set_metadata(self, metadata: dict[str, Any]) -> dict[str, Any] | None:
        self._metadata = dict(metadata)
        return dict(metadata)

    def alert(self, title: str | None, description: str | None, level: str) -> None:
        text = ": ".join(part for part in (title, description) if part)
        logger.log(logging.getLevelName(level.upper()), "alert: %s", text)

    def report_task_using(self, kind: str, identifier: str) -> None:
        logger.debug("report_task_using_%s(%r)", kind, identifier)

    def describe_run(self, description: RunDescription) -> None:
        pass

    def report_environment(
        self, environment: Mapping[str, Any], differences: Sequence[str]
    ) -> None:
        pass

    def note_end(self, error: BaseException | None, signal_number: int | None) -> None:
        pass

    def close(self) -> None:
        pass


class _Readable:
    """Metrics on one line with plain numbers; formatted only if the line is logged."""

    def __init__(self, metrics: dict[str, Any]) -> None:
        self._metrics = metrics

    def __str__(self) -> str:
        return str({name: self._plain(value) for name, value in self._metrics.items()})

    @staticmethod
    def _plain(value: Any) -> Any:
        if not hasattr(value, "tolist"):
            return value
        size = math.prod(getattr(value, "shape", ()))
        return value.tolist() if size <= 16 else f"<{size} values>"
