"""The backend of a script that the platform did not start: a local run that is recorded as well."""

from __future__ import annotations

import getpass
import logging
import os
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from determined import journal
from determined.core._enums import EarlyExitReason
from determined.core.backends.backend import LocalBackend, RunDescription
from determined.core.backends.journal import columns_of, json_values
from determined.core.backends.recorder import Recorder
from determined.core.backends.titles import RunTitle
from determined.core.backends.tracking import command_line, how_it_ended, program_name
from determined.journal import InboxItem, Introduction, Record

logger = logging.getLogger("determined.core")


class TrackedBackend(LocalBackend):
    """Does all that a local run does. Recording never stops or delays it.

    The first report or checkpoint makes a run worth recording; what came before is kept until then.
    """

    def __init__(
        self,
        storage: Mapping[str, Any],
        title: RunTitle | None = None,
        description: RunDescription | None = None,
    ) -> None:
        super().__init__()
        self._title = title or RunTitle()
        self._first_description = description or RunDescription()
        self._storage = dict(storage)
        self._folder = os.getcwd()  # noqa: PTH109  # a script may go elsewhere later
        self._command = command_line()
        self._description = self._first_description
        self._started = time.time()
        self._last_step = 0
        self._tensorboard = ""
        self._end = how_it_ended(None, None)
        self._recorded_error: BaseException | None = None
        self._recorder = Recorder(self._introduction)

    def describe_run(self, description: RunDescription) -> None:
        """A new run starts; the previous one in this process, if any, is over."""
        if self._recorder.has_begun:
            self._recorder.close(*self._end)
        self._description, self._started = description, time.time()
        self._last_step = description.steps_completed
        self._end = how_it_ended(None, None)
        self._recorder = Recorder(self._introduction)

    def report_metrics(
        self,
        group: str,
        steps_completed: int,
        metrics: dict[str, Any],
        batch_metrics: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        super().report_metrics(group, steps_completed, metrics, batch_metrics)
        self._last_step = max(self._last_step, steps_completed)

        def record() -> Record:
            columns = None if batch_metrics is None else columns_of(batch_metrics)
            return journal.Metrics(group, steps_completed, _json_values(metrics), columns)

        self._append(record)

    def report_system_metrics(self, group: str, metrics: dict[str, Any]) -> None:
        super().report_system_metrics(group, metrics)
        self._note(lambda: journal.SystemSamples(group, _json_values(metrics)))

    def report_progress(self, progress: float) -> None:
        super().report_progress(progress)
        self._note(lambda: journal.Progress(progress))

    def set_status(self, status: str) -> None:
        super().set_status(status)
        self._note(lambda: journal.Status(str(status)))

    def report_early_exit(self, reason: EarlyExitReason) -> None:
        super().report_early_exit(reason)
        self._note(lambda: journal.EarlyExit(reason.name))

    def before_save(self, storage_id: str, metadata: dict[str, Any]) -> None:
        """Ensure that what was reported is on disk: a run that resumes does not repeat it."""
        self._append(lambda: journal.CheckpointAnnounced(storage_id, self._steps_of(metadata)))
        self._recorder.flush()

    def report_checkpoint(self, record: dict[str, Any]) -> None:
        super().report_checkpoint(record)
        steps, uuid = self._steps_of(record), record["uuid"]
        self._append(
            lambda: journal.Checkpoint(
                uuid,
                steps,
                dict(record["resources"]),
                json_values(record["metadata"]),
                record.get("hashes", ""),
            )
        )
        self._log(f"checkpoint {uuid} at step {steps}")

    def set_tensorboard_folder(self, directory: Path) -> None:
        self._tensorboard = str(directory)

    def checkpoint_deleted(self, storage_id: str) -> None:
        super().checkpoint_deleted(storage_id)
        self._note(lambda: journal.CheckpointDeleted(storage_id))

    def set_metadata(self, metadata: dict[str, Any]) -> dict[str, Any] | None:
        self._note(lambda: journal.Metadata(_json_values(metadata)))
        return super().set_metadata(metadata)

    def alert(self, title: str | None, description: str | None, level: str) -> None:
        super().alert(title, description, level)
        self._note(lambda: journal.Alert(title, description, level))

    def report_task_using(self, kind: str, identifier: str) -> None:
        super().report_task_using(kind, identifier)
        self._note(lambda: journal.TaskUsing(kind, identifier))

    def report_environment(
        self, environment: Mapping[str, Any], differences: Sequence[str]
    ) -> None:
        self._note(lambda: journal.Environment(dict(environment), list(differences)))

    def note_end(self, error: BaseException | None, signal_number: int | None) -> None:
        """Record how it ended; a failure recorded before stays."""
        if error is None and signal_number is None:
            return
        self._end = how_it_ended(error, signal_number)
        if error is not None and error is not self._recorded_error and self._end[0] == "ERROR":
            self._recorded_error = error
            self._recorder.log("".join(traceback.format_exception(error)))

    def close(self) -> None:
        self._recorder.close(*self._end)

    def _append(self, make: Callable[[], Record]) -> None:
        if not self._description.is_trial_run:
            self._safely(lambda: self._recorder.append(make()))

    def _note(self, make: Callable[[], Record]) -> None:
        self._safely(lambda: self._recorder.note(make()))

    def _safely(self, act: Callable[[], None]) -> None:
        """Ignore errors: what cannot be recorded is no reason to stop training."""
        try:
            act()
        except Exception as error:
            logger.debug("A report could not be recorded: %r", error)

    def _log(self, text: str) -> None:
        self._recorder.log(f"INFO: [{os.getpid()}] determined.core: {text}\n")

    def _steps_of(self, record: Mapping[str, Any]) -> int:
        steps = record.get("steps_completed")
        return steps if isinstance(steps, int) else self._last_step

    def _introduction(self, item: InboxItem) -> Introduction:
        """Identifies this process; called once, in the recording thread."""
        run, host, title = self._description, os.uname().nodename, self._title
        metric, smaller_is_better = run.metric, run.smaller_is_better
        if metric is None:
            first = self._first_description
            metric, smaller_is_better = first.metric, first.smaller_is_better
        self._log(f"{' '.join(self._command)} (in {self._folder} on {host})")
        return Introduction(
            name=title.name or program_name() or "python",
            command=self._command,
            folder=self._folder,
            owner=_owner(),
            host=host,
            boot_id=item.boot_id,
            pid=os.getpid(),
            storage=_json_values(self._storage),
            hparams=_json_values(run.hparams or self._first_description.hparams),
            seed=run.seed,
            run_id=run.run_id,
            continues=run.continues,
            steps_completed=run.steps_completed,
            forked_at=run.forked_at or 0,
            metric=metric,
            smaller_is_better=smaller_is_better,
            project=title.project,
            labels=list(title.labels),
            description=title.description,
            tensorboard=self._tensorboard,
            time=self._started,
        )


def _owner() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may have no name for the user id
        return str(os.getuid())


def _json_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values that JSON can represent, without a warning about the others."""
    return json_values(
        {name: v for name, v in values.items() if not isinstance(v, (bytes, bytearray))}
    )
