"""The backend of a run started by the platform: a journal for reports, a file for instructions."""

from __future__ import annotations

import logging
import math
import threading
from array import array
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from determined import journal
from determined.core._enums import EarlyExitReason
from determined.core.backends.backend import VALIDATION, Mangler, RunDescription, Selector
from determined.core.backends.best import Best
from determined.errors import JournalError, MetricConflictError
from determined.journal import (
    CONTROL_FILE,
    BatchColumns,
    Column,
    Control,
    JournalWriter,
    Record,
    new_journal_path,
)
from determined.util import is_numerical_scalar

logger = logging.getLogger("determined.core")

_REMEMBERED_REPORTS = 1000
_MAX_WAITING_RECORDS = 10_000
_CONTROL_INTERVAL_SECONDS = 0.2


class JournalBackend:
    """A run of the platform. Nothing here waits for the platform, and no report is lost.

    A journal that cannot be written (a full disk) does not stop training: records wait in memory,
    and only a checkpoint is refused until they are on disk.
    """

    def __init__(
        self,
        folder: Path,
        run_id: int,
        steps_completed: int,
        rank: int = 0,
        *,
        writer: JournalWriter | None = None,
        restarts_trials: bool = True,
    ) -> None:
        self.restarts_trials = restarts_trials
        self._folder = folder
        self._rank = rank
        self._guard = threading.Lock()
        self._syncing = threading.Lock()
        self._journal = writer
        self._waiting: deque[Record] = deque(maxlen=_MAX_WAITING_RECORDS)
        self._has_warned = False
        self._has_noticed = False
        self._has_warned_of_metric = False
        self._reported: dict[str, OrderedDict[int, dict[str, Any]]] = {}
        self._system_metrics: deque[tuple[str, dict[str, Any]]] = deque(maxlen=1000)
        self._best = Best()
        self._last_validation: int | None = None
        self._last_step = steps_completed
        self._metadata: dict[str, Any] | None = None
        self._has_exited = False
        self._is_preemption_requested = False
        self._watcher = ControlWatcher(folder)
        if rank == 0:
            self._append(journal.RunStarted(run_id, steps_completed))

    def report_metrics(
        self,
        group: str,
        steps_completed: int,
        metrics: dict[str, Any],
        batch_metrics: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        values = json_values(metrics)
        _check_epochs(values)
        columns = None if batch_metrics is None else columns_of(batch_metrics)
        self._check_conflicts(group, steps_completed, values)
        self._append(journal.Metrics(group, steps_completed, values, columns))
        self._last_step = max(self._last_step, steps_completed)
        if group == VALIDATION:
            self._last_validation = steps_completed
            self._best.note(values)
            self._warn_of_metric(steps_completed, values)

    def _warn_of_metric(self, steps: int, metrics: dict[str, Any]) -> None:
        """Say once that a validation lacks the metric that the experiment compares trials by."""
        name = self._best.metric
        if name is None or name in metrics or self._has_warned_of_metric:
            return
        self._has_warned_of_metric = True
        reported = ", ".join(f"`{key}`" for key in metrics) or "none"
        logger.warning(
            f"The validation at step {steps} has no `{name}`, the `searcher.metric` of the "
            f"experiment. The reported metrics are: {reported}. Set `searcher.metric` to one of "
            "these: until then no trial counts as the best."
        )

    def report_system_metrics(self, group: str, metrics: dict[str, Any]) -> None:
        self._system_metrics.append((group, metrics))
        self._append(journal.SystemSamples(group, metrics))

    def recent_system_metrics(self) -> list[tuple[str, dict[str, Any]]]:
        return list(self._system_metrics)

    def report_progress(self, progress: float) -> None:
        self._append(journal.Progress(progress))

    def set_status(self, status: str) -> None:
        self._append(journal.Status(status))

    def report_early_exit(self, reason: EarlyExitReason) -> None:
        if not self._has_exited:
            self._has_exited = True
            self._append(journal.EarlyExit(reason.name, self._rank))

    def set_best_tracking(
        self, metric: str | None, smaller_is_better: bool, best: float | None = None
    ) -> None:
        self._best = Best(metric, smaller_is_better, best)
        self._last_validation = None

    def deciding_metric(self) -> str | None:
        return self._best.metric

    def best_validation(self) -> float | None:
        return self._best.or_better(self._watcher.control.best_validation)

    def own_best(self) -> float | None:
        return self._best.value

    def is_best(self, metrics: Mapping[str, Any]) -> bool:
        return self._best.is_beaten_by(metrics)

    def last_validation(self) -> int | None:
        if self._last_validation is not None:
            return self._last_validation
        return self._watcher.control.last_validation

    def before_save(self, storage_id: str, metadata: dict[str, Any]) -> None:
        notice = self._watcher.control.notice
        if notice and not self._has_noticed:
            logger.warning("%s", notice)
        self._has_noticed = bool(notice)
        steps = self._steps_of(metadata)
        # Training reports meanwhile: only other saves wait for the disk.
        with self._syncing:
            with self._guard:
                self._waiting.append(journal.CheckpointAnnounced(storage_id, steps))
                self._write_waiting()
                written = self._journal
            if written is not None:
                written.sync()

    def report_checkpoint(self, record: dict[str, Any]) -> None:
        steps = self._steps_of(record)
        self._append(
            journal.Checkpoint(
                record["uuid"],
                steps,
                record["resources"],
                record["metadata"],
                record.get("hashes", ""),
            )
        )

    def _steps_of(self, record: Mapping[str, Any]) -> int:
        steps = record.get("steps_completed")
        return steps if isinstance(steps, int) else self._last_step

    def checkpoint_deleted(self, storage_id: str) -> None:
        self._append(journal.CheckpointDeleted(storage_id))

    def upload_tensorboard_files(
        self, directory: Path, selector: Selector, mangler: Mangler
    ) -> None:
        logger.debug("upload_tensorboard_files: the files stay in %s", directory)

    def set_tensorboard_folder(self, directory: Path) -> None:
        pass  # the platform chose it

    def request_preemption(self) -> None:
        self._is_preemption_requested = True

    def should_preempt(self) -> bool:
        return self._is_preemption_requested or self._watcher.control.preempt

    def acknowledge_preemption(self) -> None:
        reason = self._watcher.control.reason
        logger.info("Training stops as asked%s.", f": {reason}" if reason else "")
        self._append(journal.PreemptionAcknowledged())

    def get_metadata(self) -> dict[str, Any] | None:
        return dict(self._watcher.control.metadata if self._metadata is None else self._metadata)

    def set_metadata(self, metadata: dict[str, Any]) -> dict[str, Any] | None:
        self._metadata = json_values(metadata)
        if self._rank == 0:
            self._append(journal.Metadata(self._metadata))
        return dict(metadata)

    def alert(self, title: str | None, description: str | None, level: str) -> None:
        text = ": ".join(part for part in (title, description) if part)
        logger.log(logging.getLevelName(level.upper()), "alert: %s", text)
        self._append(journal.Alert(title, description, level))

    def report_task_using(self, kind: str, identifier: str) -> None:
        self._append(journal.TaskUsing(kind, identifier))

    def describe_run(self, description: RunDescription) -> None:
        """Nothing to do: the platform knows all this."""

    def report_environment(
        self, environment: Mapping[str, Any], differences: Sequence[str]
    ) -> None:
        if self._rank == 0:
            self._append(journal.Environment(dict(environment), list(differences)))

    def note_end(self, error: BaseException | None, signal_number: int | None) -> None:
        """Nothing to do: the keeper sees how the process ends."""

    def append(self, record: Record) -> None:
        """Add records to the journal, as soon as that is possible."""
        self._append(record)

    def close(self) -> None:
        self._watcher.close()
        with self._syncing, self._guard:
            try:
                self._write_waiting()
            finally:
                if self._journal is not None:
                    self._journal.close()

    def _check_conflicts(self, group: str, steps: int, metrics: dict[str, Any]) -> None:
        """Refuse a second, different value here, where the traceback names its line."""
        reports = self._reported.setdefault(group, OrderedDict())
        known = reports.setdefault(steps, {})
        for name, value in metrics.items():
            if name in known and not _is_same(known[name], value):
                raise MetricConflictError(
                    f"The metric {name!r} of group {group!r} was reported at step {steps} as "
                    f"{known[name]!r} before, and now as {value!r}: report it once per step, or "
                    "under another name."
                )
        known.update(metrics)
        while len(reports) > _REMEMBERED_REPORTS:
            reports.popitem(last=False)

    def _append(self, record: Record) -> None:
        with self._guard:
            self._waiting.append(record)
            try:
                self._write_waiting()
            except JournalError as error:
                if not self._has_warned:
                    self._has_warned = True
                    logger.warning("%s Reports are kept in memory until it works again.", error)

    def _write_waiting(self) -> None:
        if not self._waiting:
            return
        if self._journal is None:
            self._journal = JournalWriter(new_journal_path(self._folder))
        self._journal.append(self._waiting)
        self._waiting.clear()
        self._has_warned = False


class ControlWatcher:
    """Keeps the newest content of a control file in `control`; reading it costs nothing."""

    def __init__(self, folder: Path) -> None:
        self.control = Control()
        self._path = folder / CONTROL_FILE
        self._seen: tuple[int, int, int] | None = None
        self._stopped = threading.Event()
        self._refresh()
        self._thread = threading.Thread(target=self._watch, name="determined-control", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(_CONTROL_INTERVAL_SECONDS):
            self._refresh()

    def _refresh(self) -> None:
        try:
            status = self._path.stat()
        except OSError:
            return  # not there yet, or the folder is gone: the last content still holds
        seen = (status.st_ino, status.st_mtime_ns, status.st_size)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self.control = Control.parse(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            logger.warning("The control file %s cannot be read: %s.", self._path, error)


def json_values(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Values that JSON can represent; bytes are dropped with a warning, others become text."""
    binary = [name for name, value in metrics.items() if isinstance(value, (bytes, bytearray))]
    if binary:
        logger.warning("Dropped metrics that are bytes: %s.", ", ".join(map(str, binary)))
    return {str(name): _json_value(v) for name, v in metrics.items() if name not in binary}


def _json_value(value: Any) -> Any:
    if type(value) in (float, int, str, bool, type(None)):
        return value
    if hasattr(value, "tolist"):
        return _json_value(value.tolist())
    if isinstance(value, Mapping):
        return {str(name): _json_value(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_value(inner) for inner in value]
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return str(value)


def columns_of(batch_metrics: Sequence[dict[str, Any]]) -> BatchColumns:
    """Metrics of single batches, as a journal keeps them."""
    given: Mapping[str, Any] | None = getattr(batch_metrics, "columns", None)
    if given is None:
        return BatchColumns.of([json_values(batch) for batch in batch_metrics])
    columns = {str(name): _column(values) for name, values in given.items()}
    return BatchColumns(len(batch_metrics), columns)


def _column(values: Any) -> Column:
    kind = getattr(getattr(values, "dtype", None), "kind", None)
    if kind == "f" and values.ndim == 1:
        numbers: array[float] = array("d")
        numbers.frombytes(values.astype("<f8").tobytes())
        return Column(numbers)
    return BatchColumns.of([{"": _json_value(value)} for value in values]).columns.get(
        "", Column([])
    )


def _check_epochs(metrics: dict[str, Any]) -> None:
    for name in ("epoch", "epochs"):
        if name in metrics and not is_numerical_scalar(metrics[name]):
            raise ValueError(f"The metric {name!r} must be a number, got {metrics[name]!r}.")


def _is_same(old: Any, new: Any) -> bool:
    if isinstance(old, float) and isinstance(new, float) and math.isnan(old):
        return math.isnan(new)
    return bool(old == new) or repr(old) == repr(new)
