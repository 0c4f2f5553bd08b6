"""TrainContext: report the metrics, progress and metadata of a training run."""

from __future__ import annotations

import datetime
import itertools
import logging
import numbers
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from determined._contracts.metric_groups import is_of_validation
from determined.core._enums import EarlyExitReason, TensorboardMode
from determined.core.backends.backend import (
    TRAINING,
    VALIDATION,
    Backend,
    LocalBackend,
    Mangler,
    RunDescription,
    Selector,
)

if TYPE_CHECKING:
    from determined.core._distributed import DistributedContext
    from determined.tensorboard._events import ScalarEvents

logger = logging.getLogger("determined.core")


class TrainContext:
    """Reports metrics, progress and status of a training run, and knows its TensorBoard directory.

    Reports come from the chief. Those of other ranks are dropped, with one warning; only
    `report_early_exit` counts from any rank. With `TensorboardMode.AUTO`, training and validation
    metrics also go to TensorBoard.
    """

    def __init__(
        self,
        backend: Backend,
        distributed: DistributedContext | None = None,
        tensorboard_path: str | os.PathLike[str] | None = None,
        tensorboard_mode: TensorboardMode = TensorboardMode.MANUAL,
        is_default_tensorboard_path: bool = False,
        steps_completed: int = 0,
    ) -> None:
        self._backend = backend
        self._distributed = distributed
        self._rank = 0 if distributed is None else distributed.rank
        self._tensorboard_path = None if tensorboard_path is None else Path(tensorboard_path)
        # Where the library, not the user, chooses the name of a run's directory.
        self._tensorboard_parent: Path | None = None
        if is_default_tensorboard_path and self._tensorboard_path is not None:
            self._tensorboard_parent = self._tensorboard_path.parent
        self._is_automatic = TensorboardMode(tensorboard_mode) == TensorboardMode.AUTO
        self._events: ScalarEvents | None = None
        self._has_warned = False
        self._last_step = steps_completed
        if self._tensorboard_path is not None:
            backend.set_tensorboard_folder(self._tensorboard_path)

    def set_status(self, status: str) -> None:
        """Show a short free text, such as "validating", as the state of the trial."""
        if self._reports("set_status"):
            self._backend.set_status(status)

    def report_training_metrics(
        self,
        steps_completed: int,
        metrics: dict[str, Any],
        batch_metrics: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        """Report metrics of the training batches up to `steps_completed`."""
        self._report(TRAINING, steps_completed, metrics, batch_metrics)

    def report_validation_metrics(self, steps_completed: int, metrics: dict[str, Any]) -> None:
        """Report the result of a validation; metrics that are bytes are dropped."""
        self._report(VALIDATION, steps_completed, metrics)

    def report_metrics(self, group: str, steps_completed: int, metrics: dict[str, Any]) -> None:
        """Report metrics of any group; `"training"` and `"validation"` are the built-in ones."""
        self._report(group, steps_completed, metrics)

    def log(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Report metrics of one step, training and validation together, in a single call.

        The `metric` of `init` (in a trial of the platform the searcher's), and names that begin
        with `val`, `valid`, `validation` or `eval`, such as `val/loss` or `eval_accuracy`, are
        validation metrics; all others are training metrics. Names stay as they are. Without `step`,
        it is one more than the last step that was reported.
        """
        if not isinstance(metrics, Mapping):
            raise TypeError(f"`metrics` must be a dict, got {type(metrics).__name__}.")
        for name in metrics:
            if not isinstance(name, str):
                raise TypeError(f"Names of metrics must be strings, got {name!r}.")
        step = self._last_step + 1 if step is None else _checked_step("step", step)
        decides = self._backend.deciding_metric()
        groups: dict[str, dict[str, Any]] = {}
        for name, value in metrics.items():
            group = VALIDATION if is_of_validation(name, decides) else TRAINING
            groups.setdefault(group, {})[name] = value
        for group in sorted(groups):  # training first: a search may act on the validation
            self._report(group, step, groups[group])

    def report_progress(self, progress: float) -> None:
        """Report how much is done, from 0 to 1."""
        if not 0 <= progress <= 1:
            raise ValueError(f"`progress` must be between 0 and 1, got {progress!r}.")
        if self._reports("report_progress"):
            self._backend.report_progress(float(progress))

    def report_early_exit(self, reason: EarlyExitReason) -> None:
        """Report why the trial ends early; only the first report counts."""
        self._backend.report_early_exit(EarlyExitReason(reason))

    def get_experiment_best_validation(self) -> float | None:
        """The best value of the searcher's metric so far, None before the first validation."""
        return self._backend.best_validation()

    def set_metadata(self, metadata: dict[str, Any]) -> dict[str, Any] | None:
        """Replace the free-form metadata of the trial."""
        if not isinstance(metadata, dict):
            raise TypeError(f"`metadata` must be a dict, got {type(metadata).__name__}.")
        return self._backend.set_metadata(metadata)

    def get_metadata(self) -> dict[str, Any] | None:
        """The free-form metadata of the trial."""
        return self._backend.get_metadata()

    def get_tensorboard_path(self) -> Path:
        """The directory for event files of this rank; it exists after this call."""
        self._tensorboard_parent = None  # from now on a caller relies on the path
        path = self._tensorboard_root()
        if self._rank > 0:
            path = path / f"rank_{self._rank}"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def upload_tensorboard_files(
        self, selector: Selector = lambda _: True, mangler: Mangler = lambda path, _: path
    ) -> None:
        """Upload the event files; does nothing for a local run."""
        self._backend.upload_tensorboard_files(self._tensorboard_root(), selector, mangler)

    def close(self) -> None:
        """Write and send what is still pending."""
        try:
            if self._events is not None:
                self._events.close()
        finally:
            self._backend.close()

    def _set_best_tracking(
        self, metric: str | None, smaller_is_better: bool, best: float | None = None
    ) -> None:
        """A run starts: track the best value of `metric`, from `best` on if it continues one."""
        self._backend.set_best_tracking(metric, smaller_is_better, best)

    def _describe_run(self, description: RunDescription) -> None:
        """Announce that training begins, and what it is, to the backend."""
        self._backend.describe_run(description)

    def _report_environment(
        self, environment: Mapping[str, Any], differences: Sequence[str]
    ) -> None:
        """Tell the backend what training computes with, and what of that is not as it was."""
        self._backend.report_environment(environment, differences)

    def _note_failure(self, error: BaseException) -> None:
        """Training failed, even if the error is caught further up."""
        self._backend.note_end(error, None)

    def _is_best(self, metrics: Mapping[str, Any]) -> bool:
        """Whether a validation, not reported yet, is better than all of this trial before."""
        return self._backend.is_best(metrics)

    def _get_own_best(self) -> float | None:
        """The best value of the metric in this trial, whatever others of its experiment reached."""
        return self._backend.own_best()

    def _get_last_validation(self) -> int | None:
        return self._backend.last_validation()

    def _name_tensorboard_run(self, name: str, is_continued: bool) -> None:
        """Write to the directory of a run, unless another was chosen or is in use; for all ranks.

        A run that starts from scratch gets a directory of its own, so that curves do not cross.
        """
        parent, distributed = self._tensorboard_parent, self._distributed
        chosen = None if parent is None else str(_directory_of_run(parent, name, is_continued))
        if distributed is not None and distributed.size > 1:
            chosen = distributed.broadcast(chosen)
        if chosen is not None:
            self._tensorboard_path = Path(chosen)
            self._backend.set_tensorboard_folder(self._tensorboard_path)

    def _tensorboard_root(self) -> Path:
        if self._tensorboard_path is None:
            self._tensorboard_path = default_tensorboard_path(None)
        return self._tensorboard_path

    def _report(
        self,
        group: str,
        steps_completed: int,
        metrics: dict[str, Any],
        batch_metrics: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        if not isinstance(group, str) or not group or "." in group:
            raise ValueError(f"`group` must be a non-empty str without '.', got {group!r}.")
        steps_completed = _checked_step("steps_completed", steps_completed)
        if not isinstance(metrics, dict):
            raise TypeError(f"`metrics` must be a dict, got {type(metrics).__name__}.")
        self._last_step = max(self._last_step, steps_completed)
        if self._reports(f"metrics of group {group!r}"):
            if group == VALIDATION:
                metrics = _without_bytes(metrics)
            self._backend.report_metrics(group, steps_completed, metrics, batch_metrics)
            if self._is_automatic:
                self._write_events(group, steps_completed, metrics, batch_metrics)

    def _write_events(
        self,
        group: str,
        steps_completed: int,
        metrics: dict[str, Any],
        batch_metrics: Sequence[dict[str, Any]] | None,
    ) -> None:
        from determined.tensorboard._events import ScalarEvents
        from determined.tensorboard._series import log_training, log_validation

        if self._events is None:
            self._events = ScalarEvents(self._tensorboard_root())
        if group == TRAINING:
            log_training(self._events, steps_completed, metrics, batch_metrics)
        elif group == VALIDATION:
            log_validation(self._events, steps_completed, metrics)

    def _reports(self, what: str) -> bool:
        if self._rank > 0 and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "Only the chief reports; dropped on rank %d: %s. Further reports are dropped "
                "silently.",
                self._rank,
                what,
            )
        return self._rank == 0


class DummyTrainContext(TrainContext):
    """A TrainContext for a local run."""

    def __init__(self, tensorboard_path: str | os.PathLike[str] | None = None) -> None:
        super().__init__(LocalBackend(), tensorboard_path=tensorboard_path)


def default_tensorboard_path(storage_base: Path | None, ids: tuple[int, int] | None = None) -> Path:
    """The directory for event files, next to the checkpoints.

    A trial, given by its `ids` (experiment, trial), has one for all its runs; any other run gets a
    new one.
    """
    if storage_base is None:
        import platformdirs

        storage_base = Path(platformdirs.user_data_dir("determined"))
    if ids is not None:
        return storage_base / "tensorboard" / f"experiment/{ids[0]}/trial/{ids[1]}"
    now = datetime.datetime.now().strftime("%Y-%m-%dT%H-%M-%S-%f")
    return storage_base / "tensorboard" / f"{now}-{os.getpid()}"


def _directory_of_run(parent: Path, name: str, is_continued: bool) -> Path:
    """The newest directory of a run: `name`, `name.2`, ...; or the next, if that one is in use."""
    newest = parent / name
    for number in itertools.count(2):
        following = parent / f"{name}.{number}"
        if not following.exists():
            break
        newest = following
    is_used = newest.is_dir() and any(newest.iterdir())
    return following if is_used and not is_continued else newest


def _checked_step(argument: str, value: Any) -> int:
    if not isinstance(value, numbers.Integral) or not 0 <= int(value) < 2**63:
        raise ValueError(f"`{argument}` must be an integer >= 0 and below 2**63, got {value!r}.")
    return int(value)


def _without_bytes(metrics: dict[str, Any]) -> dict[str, Any]:
    binary = [name for name, value in metrics.items() if isinstance(value, (bytes, bytearray))]
    if binary:
        logger.warning("Dropped validation metrics that are bytes: %s.", ", ".join(binary))
    return {name: value for name, value in metrics.items() if name not in binary}
