"""Remove files that are marked for deletion: of checkpoints, then folders of experiments.

What to delete is committed before, and what was deleted is recorded after; after a crash in
between, the deletion is repeated. Files that are gone already are no error.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

from determined.platform.homes.home import Home
from determined.platform.rules.states import State
from determined.platform.supervisor.decisions import Decisions
from determined.storage import StorageManager, build
from determined.store import (
    Deletion,
    Experiment,
    Transaction,
    is_inside,
    is_storage_inside,
)

logger = logging.getLogger("determined.supervisor")

_AT_ONCE = 200
_TRIALS_AT_ONCE = 20
_LONGEST_SECONDS = 2.0


@dataclass
class _Result:
    left: dict[str, dict[str, int]] = field(default_factory=dict)
    """The files that each checkpoint still has."""
    failures: dict[str, str] = field(default_factory=dict)
    experiment_id: int | None = None
    """Whose folders were removed."""
    failure: str = ""


class FileDeletion:
    """Works through what is due, one part after the other, outside the loop."""

    def __init__(self, home: Home, changed: asyncio.Event, *, is_copy: bool = False) -> None:
        """In a copy of a home only what is inside it is deleted."""
        self._home = home
        self._is_copy = is_copy
        self._changed = changed
        self._due: list[tuple[Deletion, str | None]] = []
        self._emptied: list[tuple[Experiment, list[Path]]] = []
        self._failed: set[str] = set()
        self._result: _Result | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False

    def load(self, transaction: Transaction) -> None:
        """Read what is due; experiments without files of checkpoints can be removed."""
        if self._task is not None or self._result is not None:
            return
        self._due = transaction.deletions.due(_AT_ONCE, self._failed)
        self._emptied = []
        for experiment in transaction.with_state(State.DELETING.value):
            left = transaction.deletions.of_experiment(experiment.id)
            failures = [deletion.failure for deletion in left if deletion.failure]
            has_calls = experiment.environment.get("calls") and not self._is_copy
            if len(failures) < len(left) or has_calls:
                continue
            if failures:
                fail(transaction, experiment.id, failures[0])
            else:
                self._emptied.append((experiment, self._folders(transaction, experiment)))

    def _folders(self, transaction: Transaction, experiment: Experiment) -> list[Path]:
        """The folders of an experiment in this home."""
        trials = transaction.trials(experiment.id)
        found = [self._home.tensorboard / str(trial.id) for trial in trials]
        runs = [Path(folder) for folder in transaction.run_folders(experiment.id)]
        found += [folder for folder in runs if self._home.path in folder.parents]
        found.append(self._home.experiment(experiment.id))
        if creation := experiment.environment.get("creation"):
            found.append(self._home.creations / creation)
        return [folder for folder in found if self._may_touch(folder)]

    def _may_touch(self, folder: Path) -> bool:
        """Whether a folder is ours: in a copy it may be a link to the folder of the home itself."""
        return not self._is_copy or is_inside(self._home.path, folder)

    @property
    def has_results(self) -> bool:
        """Whether something was deleted that is not recorded yet."""
        return self._result is not None

    @property
    def is_busy(self) -> bool:
        return self._task is not None or bool(self._due or self._emptied) or self.has_results

    def act(self) -> None:
        """Start the next part."""
        if self._task is None and self._result is None and not self._is_closing and self.is_busy:
            self._task = asyncio.get_running_loop().create_task(self._delete())

    def record(self, decisions: Decisions) -> None:
        """Note what was deleted."""
        transaction = decisions.transaction
        result, self._result = self._result, None
        if result is None:
            return
        for uuid, left in result.left.items():
            transaction.deletions.end(uuid, left)
        for uuid, failure in result.failures.items():
            self._failed.add(uuid)
            transaction.deletions.fail(uuid, failure)
            checkpoint = transaction.checkpoint(uuid)
            transaction.note(
                "deletion",
                f"checkpoint {uuid} could not be deleted: {failure}",
                level="warn",
                experiment_id=checkpoint.experiment_id if checkpoint else None,
            )
        if result.experiment_id is not None:
            if result.failure:
                fail(transaction, result.experiment_id, result.failure)
            else:
                transaction.delete_experiment(result.experiment_id, _TRIALS_AT_ONCE)

    async def close(self) -> None:
        """Stop after the checkpoint that is being deleted; the rest is still due."""
        self._is_closing = True
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _delete(self) -> None:
        try:
            if self._due:
                self._result = await asyncio.to_thread(self._delete_files, self._due)
            else:
                self._result = await asyncio.to_thread(_remove_folders, *self._emptied[0])
        finally:
            self._due, self._emptied = [], []
            self._task = None
            self._changed.set()

    def _delete_files(self, due: list[tuple[Deletion, str | None]]) -> _Result:
        result = _Result()
        storages: dict[str, StorageManager] = {}
        deadline = time.monotonic() + _LONGEST_SECONDS  # so that it is recorded from time to time
        for deletion, section in due:
            if self._is_closing or time.monotonic() > deadline:
                break
            if section is None or not self._owns(section):  # only delete our record
                result.left[deletion.uuid] = {}
                continue
            try:
                if section not in storages:
                    storages[section] = build(json.loads(section))
                left = storages[section].delete(deletion.uuid, deletion.globs)
                result.left[deletion.uuid] = left
            except Exception as error:  # of any kind of storage
                logger.warning("checkpoint %s cannot be deleted", deletion.uuid, exc_info=True)
                result.failures[deletion.uuid] = f"{type(error).__name__}: {error}"
        return result

    def _owns(self, section: str) -> bool:
        return not self._is_copy or is_storage_inside(self._home.path, json.loads(section))


def fail(transaction: Transaction, experiment_id: int, failure: str) -> None:
    """Record that an experiment could not be deleted; another command tries again."""
    state = State.DELETE_FAILED.value
    reason = f"could not be deleted: {failure}"
    transaction.update_experiment(experiment_id, state=state, reason=reason)
    transaction.note("deletion", reason, level="error", experiment_id=experiment_id)


def _remove_folders(experiment: Experiment, folders: list[Path]) -> _Result:
    result = _Result(experiment_id=experiment.id)
    try:
        for folder in folders:
            if folder.exists():
                shutil.rmtree(folder)
    except OSError as error:
        logger.warning("the folders of experiment %s cannot be deleted", experiment.id)
        result.failure = f"{error.filename}: {error.strerror}"
    return result
