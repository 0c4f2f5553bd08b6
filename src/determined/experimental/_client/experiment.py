"""Experiments: control them, read their trials and their best checkpoints."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from determined.experimental._client.checkpoint import (
    Checkpoint,
    best_checkpoints,
    list_checkpoints,
)
from determined.experimental._client.deprecation import deprecated, warn_deprecated
from determined.experimental._client.enums import (
    AnyOrder,
    CheckpointSortBy,
    ExperimentOrderBy,
    ExperimentSortBy,
    ExperimentState,
    OrderBy,
    TrialSortBy,
    is_descending,
    sort_key,
)
from determined.experimental._client.progress import progress_display
from determined.experimental._client.session import Session
from determined.experimental._client.stored import StoredObject, as_datetime
from determined.experimental._client.trial import Trial, trial_pages

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from determined.platform.service import Service
    from determined.store import Experiment as Record
    from determined.store import Trial as TrialRecord

__all__ = [
    "Experiment",
    "ExperimentOrderBy",
    "ExperimentReference",
    "ExperimentSortBy",
    "ExperimentState",
]

_POLL_SECONDS = 0.2
_WAKE_SECONDS = 2.0
_OVER = ("COMPLETED", "CANCELED", "ERROR", "DELETED", "DELETE_FAILED")


class Experiment(StoredObject):
    """An experiment.

    Attributes:
        id: Its id.
        config: Its full configuration.
        state: An `ExperimentState`.
        labels: A set of labels; None if there are none.
        archived: Whether it is hidden from lists.
        name: Its name.
        progress: Progress from 0 to 1.
        description: Its description.
        notes: Free-form notes.
        project_id: The project it belongs to.
        workspace_id: The workspace of that project.
        parent_id: The experiment it was forked from.
        username: Who created it.
        num_trials: How many trials it has.
        start_time: When its first run started.
        end_time: When it ended.
        best_trial_id: The trial with the best value of the searcher's metric.
        best_validation: The best value of the searcher's metric.
        reason: Why it ended.
    """

    def __init__(self, experiment_id: int, session: Session) -> None:
        self._session = session
        self._hydrate(session.service.experiment(experiment_id))

    def _hydrate(self, record: Record) -> None:
        self._record = record
        self.id = record.id
        self.config = dict(record.config)
        self.state = ExperimentState(f"STATE_{record.state}")
        self.labels = set(record.labels) or None
        self.archived = record.archived
        self.name = record.name
        self.progress = record.progress
        self.description = record.description
        self.notes = record.notes
        self.project_id = record.project_id
        self.parent_id = record.parent_id
        self.username = record.owner
        self.num_trials = record.num_trials
        self.start_time = as_datetime(record.started)
        self.end_time = as_datetime(record.ended)
        self.best_trial_id = record.best_trial_id
        self.best_validation = record.best_validation
        self.reason = record.reason

    @property
    def workspace_id(self) -> int:
        """The workspace of its project."""
        return self._session.workspaces.project_of_id(self.project_id).workspace_id

    def _identity(self) -> int:
        return self.id

    def _facts(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "state": self.state,
            "progress": self.progress,
            "num_trials": self.num_trials,
            "best_validation": self.best_validation,
            "best_trial_id": self.best_trial_id,
        }

    def reload(self) -> None:
        """Read the current values."""
        self._hydrate(self._session.service.experiment(self.id))

    # State

    def pause(self) -> None:
        """Pause it: its trials save a checkpoint and free their slots."""
        self._session.service.pause(self.id)
        self.reload()

    def activate(self) -> None:
        """Resume it after a pause."""
        self._session.service.activate(self.id)
        self.reload()

    def cancel(self) -> None:
        """Cancel it: its trials save a checkpoint, then it ends."""
        self._session.service.cancel(self.id)
        self.reload()

    def kill(self) -> None:
        """Kill it: it ends at once, without a last checkpoint."""
        self._session.service.kill(self.id)
        self.reload()

    def archive(self) -> None:
        """Hide it from lists; it must have ended."""
        self._session.service.archive(self.id)
        self.reload()

    def unarchive(self) -> None:
        """Show it in lists again."""
        self._session.service.archive(self.id, archived=False)
        self.reload()

    def delete(self) -> None:
        """Delete it with its trials, metrics, logs and checkpoints; returns once they are gone.

        It must have ended, and none of its checkpoints may be registered.
        """
        self._session.service.delete_experiments([self.id])
        self.state = ExperimentState.DELETED

    def wait(
        self,
        interval: float = 5.0,
        timeout: float | None = None,
        raise_on_pause: bool = True,
        progress: bool | None = None,
    ) -> ExperimentState:
        """Wait until it ends, and return its state.

        Args:
            interval: The longest time between progress updates, in seconds.
            timeout: Give up after this many seconds.
            raise_on_pause: Whether to raise if it is paused, or to keep waiting.
            progress: Whether to show a progress bar; by default in notebooks and terminals.

        Raises:
            TimeoutError: it has not ended yet; the message gives its state.
            ValueError: it is paused.
        """
        _wait_for_end(self._session.service, self.id, interval, timeout, raise_on_pause, progress)
        self.reload()
        return self.state

    def await_first_trial(self, interval: float = 0.1) -> Trial:
        """Wait for its first trial; raises RuntimeError if it ends without one."""
        record = _wait_for_trial(self._session.service, self.id, interval)
        return Trial._of(record, self._session)

    # Trials

    def iter_trials(
        self,
        sort_by: TrialSortBy = TrialSortBy.ID,
        order_by: AnyOrder = OrderBy.ASCENDING,
        limit: int | None = None,
    ) -> Iterator[Trial]:
        """Yield its trials; those without a value to sort by come last.

        Args:
            sort_by: What to sort by.
            order_by: Ascending or descending.
            limit: The maximum number of trials.
        """
        from determined.store import Order, TrialFilter

        order = Order(sort_key(sort_by, TrialSortBy), is_descending(order_by))
        return trial_pages(self._session, TrialFilter(experiment_id=self.id), order, limit)

    def list_trials(
        self, sort_by: TrialSortBy = TrialSortBy.ID, order_by: AnyOrder = OrderBy.ASCENDING
    ) -> list[Trial]:
        """List its trials."""
        return list(self.iter_trials(sort_by, order_by))

    @deprecated("Experiment.list_trials()")
    def get_trials(self, *args: Any, **kwargs: Any) -> list[Trial]:
        """List its trials."""
        return self.list_trials(*args, **kwargs)

    @property
    def best_trial(self) -> Trial | None:
        """The trial with the best value of the searcher's metric; None if no trial has one."""
        return None if self.best_trial_id is None else Trial(self.best_trial_id, self._session)

    # Checkpoints and code

    def list_checkpoints(
        self,
        sort_by: str | CheckpointSortBy | None = None,
        order_by: AnyOrder | None = None,
        max_results: int | None = None,
    ) -> list[Checkpoint]:
        """List its complete checkpoints; by default, best first by the searcher's metric.

        Args:
            sort_by: The name of a validation metric, or a `CheckpointSortBy`.
            order_by: Ascending or descending; needs `sort_by`.
            max_results: The maximum number of checkpoints.
        """
        from determined.store import CheckpointFilter

        where = CheckpointFilter(experiment_id=self.id, states=["COMPLETED"])
        return list_checkpoints(self._session, where, self._record, sort_by, order_by, max_results)

    @deprecated("Experiment.list_checkpoints(max_results=1)[0]")
    def top_checkpoint(
        self, sort_by: str | None = None, smaller_is_better: bool | None = None
    ) -> Checkpoint:
        """Return its best checkpoint by a validation metric."""
        return self._best(1, sort_by, smaller_is_better)[0]

    @deprecated("Experiment.list_checkpoints(max_results=...)")
    def top_n_checkpoints(
        self, limit: int, sort_by: str | None = None, smaller_is_better: bool | None = None
    ) -> list[Checkpoint]:
        """Return the best checkpoint of each of its best trials."""
        return self._best(limit, sort_by, smaller_is_better)

    def _best(
        self, limit: int, sort_by: str | None, smaller_is_better: bool | None
    ) -> list[Checkpoint]:
        from determined.store import CheckpointFilter

        where = CheckpointFilter(experiment_id=self.id, states=["COMPLETED"])
        found = best_checkpoints(self._session, where, self._record, sort_by, smaller_is_better)
        assert found, f"Experiment {self.id} has no checkpoint."
        of_trials: dict[int | None, Checkpoint] = {}
        for checkpoint in found:
            of_trials.setdefault(checkpoint._record.trial_id, checkpoint)
        return list(of_trials.values())[:limit]

    def download_code(self, output_dir: str | None = None) -> str:
        """Write its code to `exp-<id>_model_def.tar.gz` in a folder, and return the path."""
        folder = Path() if output_dir is None else Path(output_dir).expanduser()
        target = folder / f"exp-{self.id}_model_def.tar.gz"
        self._session.service.write_code(self.id, target)
        return str(target)

    def delete_tensorboard_files(self) -> None:
        """Delete the TensorBoard event files of its trials."""
        self._session.service.delete_tensorboard_files(self.id)

    def get_pachyderm_config(self) -> dict[str, Any]:
        """Return an empty dict: Pachyderm is not supported."""
        return {}

    # Name, notes and labels

    def set_name(self, name: str) -> None:
        """Set its name."""
        if not name.strip():
            raise ValueError("`name` must not be empty.")
        self._change(name=name)

    def set_description(self, description: str) -> None:
        """Set its description."""
        self._change(description=description)

    def set_notes(self, notes: str) -> None:
        """Set its notes."""
        self._change(notes=notes)

    def set_labels(self, labels: Iterable[str]) -> None:
        """Replace its labels."""
        if isinstance(labels, str):
            raise ValueError(f"`labels` must be a set of strings, got one string: {labels!r}.")
        self._change(labels=sorted(set(labels)))

    def add_label(self, label: str) -> None:
        """Add a label."""
        self._session.service.label(self.id, label)
        self.reload()

    def remove_label(self, label: str) -> None:
        """Remove a label, if it is there."""
        self._session.service.label(self.id, label, remove=True)
        self.reload()

    def move_to_project(self, workspace_name: str, project_name: str) -> None:
        """Move it to another project."""
        self._session.workspaces.project(workspace_name, project_name)
        self._session.service.move(self.id, workspace_name, project_name)
        self.reload()

    def _change(self, **changes: Any) -> None:
        self._session.service.change(self.id, **changes)
        self.reload()

    # Analysis

    def to_dataframe(self) -> pd.DataFrame:
        """Return its trials as a pandas.DataFrame, one row per trial.

        The index is the trial's id. Hyperparameters are in columns `hparams.<name>`; `best` and
        `latest` are values of the searcher's metric.
        """
        from determined.experimental._client.frames import trials_frame

        return trials_frame(self._record, [trial._record for trial in self.iter_trials()])

    def plot(
        self, metric: str | None = None, group: str = "validation", kind: str | None = None
    ) -> go.Figure:
        """Plot it as a plotly figure.

        Args:
            metric: Which metric; default: the searcher's.
            group: Which group of metrics: `validation`, `training` or another one.
            kind: `curves` (learning curves) or `parallel` (hyperparameters and the best
                value of each trial); by default both, if it has several trials.
        """
        from determined.experimental._client.charts import experiment_figure

        trials = [trial._record for trial in self.iter_trials()]
        reader = self._session.service.reader
        return experiment_figure(reader, self._record, trials, metric, group, kind)


Trial._experiment_class = Experiment


class ExperimentReference(Experiment):
    """Deprecated: use Experiment."""

    def __init__(self, experiment_id: int, session: Session) -> None:
        warn_deprecated("ExperimentReference", "Experiment")
        super().__init__(experiment_id, session)


def _wait_for_end(
    service: Service,
    experiment_id: int,
    interval: float,
    timeout: float | None,
    raise_on_pause: bool,
    progress: bool | None,
) -> None:
    """Return when an experiment ends; a dead supervisor is restarted."""
    if not interval > 0:
        raise ValueError(f"`interval` must be a positive number of seconds, got {interval!r}.")
    started = time.monotonic()
    next_wake = next_show = started
    with progress_display(progress) as display:
        while True:
            record, now = service.experiment(experiment_id), time.monotonic()
            is_over = record.state in _OVER
            if is_over or now >= next_show:
                next_show = now + min(interval, 1.0)
                display.show(record)
            if is_over:
                return
            if record.state == "PAUSED" and raise_on_pause:
                reason = f" ({record.reason})" if record.reason else ""
                raise ValueError(
                    f"Experiment {experiment_id} is paused{reason}. Make sure the experiment is "
                    "active: `activate()` resumes it, and `wait(raise_on_pause=False)` keeps "
                    "waiting."
                )
            if timeout is not None and now - started >= timeout:
                raise TimeoutError(_too_long(record, timeout))
            if now >= next_wake:
                next_wake = now + _WAKE_SECONDS
                service.wake_if_needed()
            time.sleep(_pause(interval, timeout, now - started))


def _wait_for_trial(service: Service, experiment_id: int, interval: float) -> TrialRecord:
    """Return the first trial of an experiment as soon as it has one."""
    from determined.store import TrialFilter

    while True:
        record = service.experiment(experiment_id)
        found = service.reader.trials(TrialFilter(experiment_id=experiment_id), limit=1).rows
        if found:
            return found[0]
        if record.state in _OVER:
            raise RuntimeError(f"Experiment {experiment_id} is {record.state} and has no trials.")
        service.wake_if_needed()
        time.sleep(interval)


def _pause(interval: float, timeout: float | None, waited: float) -> float:
    pause = min(interval, _POLL_SECONDS)
    return pause if timeout is None else max(0.001, min(pause, timeout - waited))


def _too_long(record: Record, timeout: float) -> str:
    return (
        f"Experiment {record.id} is still {record.state} after {timeout:g} s "
        f"({100 * record.progress:.1f}% done). It keeps running; call wait() again."
    )
