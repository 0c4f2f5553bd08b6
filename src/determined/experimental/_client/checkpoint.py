"""Checkpoints: what was saved, where it is, and how to download it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from determined.errors import CheckpointNotFound
from determined.experimental._client.deprecation import deprecated
from determined.experimental._client.enums import (
    AnyOrder,
    CheckpointOrderBy,
    CheckpointSortBy,
    CheckpointState,
    DownloadMode,
    is_descending,
)
from determined.experimental._client.metrics import TrialMetrics, reports_of_users
from determined.experimental._client.session import Session
from determined.experimental._client.stored import StoredObject, as_datetime

if TYPE_CHECKING:
    from determined.store import Checkpoint as Record
    from determined.store import CheckpointFilter, RatedCheckpoint
    from determined.store import Experiment as ExperimentRecord

__all__ = [
    "Checkpoint",
    "CheckpointOrderBy",
    "CheckpointSortBy",
    "CheckpointState",
    "CheckpointTrainingMetadata",
    "DownloadMode",
]


@dataclass
class CheckpointTrainingMetadata:
    """Where a checkpoint comes from.

    Attributes:
        experiment_config: The configuration of the experiment.
        experiment_id: The experiment.
        trial_id: The trial.
        hparams: The trial's hyperparameters.
        validation_metrics: Under `avgMetrics`, the metrics of the validation at the same step.
    """

    experiment_config: dict[str, Any] | None
    experiment_id: int | None
    trial_id: int | None
    hparams: dict[str, Any] | None
    validation_metrics: dict[str, Any]


class Checkpoint(StoredObject):
    """A saved state of a trial.

    Attributes:
        uuid: Its UUID, which is also the name of its folder in the storage.
        task_id: The task that saved it.
        allocation_id: The run that saved it.
        report_time: When it was saved.
        steps_completed: Batches trained when it was saved.
        resources: The files and their sizes; folders end in `/`.
        size: The total size of its files, in bytes.
        metadata: The metadata saved with it or added later.
        state: A `CheckpointState`.
    """

    def __init__(self, uuid: str, session: Session) -> None:
        self._session = session
        self._hydrate(session.service.checkpoint(uuid))

    def _hydrate(self, record: Record) -> None:
        self._record = record
        self.uuid = record.uuid
        self.task_id = record.task_id
        self.allocation_id = record.allocation_id
        self.report_time = as_datetime(record.report_time)
        self.steps_completed = record.steps_completed
        self.resources = dict(record.resources)
        self.size = record.size
        self.metadata = dict(record.metadata)
        self.state = CheckpointState(f"STATE_{record.state}")
        self.__dict__.pop("training", None)

    def _identity(self) -> str:
        return self.uuid

    def _facts(self) -> dict[str, Any]:
        return {
            "uuid": self.uuid,
            "trial_id": self._record.trial_id,
            "steps_completed": self.steps_completed,
            "state": self.state,
        }

    def reload(self) -> None:
        """Read the current values."""
        self._hydrate(self._session.service.checkpoint(self.uuid))

    @cached_property
    def training(self) -> CheckpointTrainingMetadata | None:
        """Where it comes from; None if it was not saved by a trial of an experiment."""
        record, service = self._record, self._session.service
        if record.trial_id is None or record.experiment_id is None:
            return None
        return CheckpointTrainingMetadata(
            service.experiment(record.experiment_id).config,
            record.experiment_id,
            record.trial_id,
            service.trial(record.trial_id).hparams,
            {"avgMetrics": service.metrics_at(record)},
        )

    def trial_config(self) -> dict[str, Any]:
        """Return the configuration its trial ran with: hyperparameters are values, not ranges."""
        training = self.training
        if training is None or training.experiment_config is None:
            return {}
        return {**training.experiment_config, "hyperparameters": training.hparams}

    def download(
        self,
        path: str | PathLike[str] | None = None,
        mode: DownloadMode | str = DownloadMode.AUTO,
    ) -> str:
        """Copy its files to a folder, and return the folder.

        Files that are already complete are not copied again, so an interrupted download can be
        resumed. `metadata.json` is written last and includes metadata added since the save.

        Args:
            path: The folder; default: `checkpoints/<uuid>`.
            mode: Accepted for compatibility: there is only one way to the storage.

        Raises:
            CheckpointStateException: its files are deleted.
            FileNotFoundError: its files are not where they were saved.
        """
        DownloadMode(mode)
        target = Path("checkpoints", self.uuid) if path is None else Path(path)
        try:
            return str(self._session.service.download(self._record, target))
        except CheckpointNotFound as error:
            raise FileNotFoundError(str(error)) from error

    def write_metadata_file(self, path: str | PathLike[str]) -> None:
        """Write the metadata to a file."""
        Path(path).write_text(json.dumps(self.metadata, indent=2), encoding="utf-8")

    @deprecated("pytorch.load_trial_from_checkpoint_path(checkpoint.download())")
    def load(self, path: str | None = None, **kwargs: Any) -> Any:
        """Download it and build its trial."""
        from determined.pytorch import load_trial_from_checkpoint_path

        return load_trial_from_checkpoint_path(self.download(path), **kwargs)

    def add_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Add keys at the top level, or replace their values.

        The store keeps them, and downloads have them. The files that were saved stay as they are.
        """
        from determined.platform.service.checkpoint_metadata import add_metadata

        add_metadata(self._session.service, self.uuid, metadata)
        self.reload()

    def remove_metadata(self, keys: Iterable[str]) -> None:
        """Remove keys at the top level."""
        from determined.platform.service.checkpoint_metadata import remove_metadata

        remove_metadata(self._session.service, self.uuid, _several(keys))
        self.reload()

    def delete(self) -> None:
        """Delete its files but keep its record; returns once they are gone.

        Refused if it is registered as a version of a model, or a trial needs it.
        """
        self._session.service.delete_checkpoints([self.uuid])
        self.reload()

    def remove_files(self, globs: Iterable[str]) -> None:
        """Delete the files that match patterns; returns once they are gone.

        Without patterns, the record is brought in line with the files that are there.
        """
        self._session.service.delete_checkpoints([self.uuid], _several(globs))
        self.reload()

    def get_metrics(self, group: str | None = None) -> Iterable[TrialMetrics]:
        """Yield the metrics of trials that reported using this checkpoint."""
        return reports_of_users(self._session, "checkpoint", self.uuid, group)

    def get_pachyderm_commit(self) -> None:
        """Return None: Pachyderm is not supported."""


def _several(words: Iterable[str]) -> list[str]:
    if isinstance(words, str):
        raise ValueError(f"Expected a list of strings, got one string: {words!r}.")
    return list(words)


def list_checkpoints(
    session: Session,
    where: CheckpointFilter,
    experiment: ExperimentRecord,
    sort_by: str | CheckpointSortBy | None,
    order_by: AnyOrder | None,
    max_results: int | None,
) -> list[Checkpoint]:
    """List checkpoints in order; by default, best first by the searcher's metric."""
    assert (sort_by is None) == (order_by is None), (
        "Give both `sort_by` and `order_by`, or neither."
    )
    if max_results is not None and max_results < 0:
        raise ValueError(f"`max_results` must not be negative, got {max_results}.")
    descending = is_descending(order_by) if order_by is not None else None
    found = _ordered(session, where, experiment, sort_by, descending)
    return [Checkpoint._of(item.checkpoint, session) for item in found[:max_results]]


def best_checkpoints(
    session: Session,
    where: CheckpointFilter,
    experiment: ExperimentRecord,
    sort_by: str | None,
    smaller_is_better: bool | None,
) -> list[Checkpoint]:
    """List checkpoints, best first; the configuration says what is better.

    Those without the metric come last.
    """
    if sort_by is None and smaller_is_better is not None:
        raise AssertionError("Give `smaller_is_better` only together with `sort_by`.")
    smaller = experiment.smaller_is_better if smaller_is_better is None else smaller_is_better
    found = _ordered(session, where, experiment, sort_by, not smaller)
    return [Checkpoint._of(item.checkpoint, session) for item in found]


def _ordered(
    session: Session,
    where: CheckpointFilter,
    experiment: ExperimentRecord,
    sort_by: str | CheckpointSortBy | None,
    descending: bool | None,
) -> list[RatedCheckpoint]:
    if sort_by is not None and not isinstance(sort_by, (str, CheckpointSortBy)):
        raise ValueError(
            f"`sort_by` must be the name of a metric or a CheckpointSortBy, got {sort_by!r}."
        )
    from determined.platform.queries.outcome import best_first

    metric = sort_by if isinstance(sort_by, str) else None
    rated = session.service.reader.rated_checkpoints(where, metric)
    if isinstance(sort_by, CheckpointSortBy) and sort_by is not CheckpointSortBy.SEARCHER_METRIC:
        field = sort_by.value
        key: Callable[[RatedCheckpoint], Any] = lambda r: getattr(r.checkpoint, field)  # noqa: E731
        return sorted(rated, key=key, reverse=bool(descending))
    smaller_first = experiment.smaller_is_better if descending is None else not descending
    return best_first(rated, smaller_first)
