"""Acts on checkpoints: delete the files of those that nothing keeps, then record it.

What to delete is asked of the store when it is done, so a collection that was cut short starts
over. Files that are gone already are no error.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from determined._retention import Retention
from determined.platform.supervisor._board import Board
from determined.storage import build
from determined.store import Reader, Transaction

logger = logging.getLogger("determined.supervisor")

_EVERYTHING = ["**/*"]


@dataclass
class _Result:
    experiment_id: int
    deleted: list[str]
    failure: str = ""


class GarbageCollection:
    """Works through the experiments that are due, one after the other, beside the loop."""

    def __init__(self, board: Board, changed: asyncio.Event) -> None:
        self._board = board
        self._changed = changed
        self._due: set[int] = set()
        self._results: list[_Result] = []
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False

    def load(self, transaction: Transaction) -> None:
        """Read which experiments are due."""
        done = {result.experiment_id for result in self._results}
        self._due = set(transaction.with_garbage()) - done

    @property
    def has_results(self) -> bool:
        """Whether something was deleted that is not recorded yet."""
        return bool(self._results)

    @property
    def is_busy(self) -> bool:
        return self._task is not None or bool(self._due) or bool(self._results)

    def act(self) -> None:
        """Begin with the next experiment."""
        if self._task is None and self._due and not self._is_closing:
            experiment_id = min(self._due)
            self._board.garbage.discard(experiment_id)  # whoever asks from now on wants another
            self._task = asyncio.get_running_loop().create_task(self._see_through(experiment_id))

    def record(self, transaction: Transaction) -> None:
        """Note what was deleted."""
        for result in self._results:
            for uuid in result.deleted:
                transaction.set_checkpoint_files(uuid, "DELETED", {})
            if result.failure:
                transaction.note(
                    "garbage",
                    f"checkpoints could not be deleted: {result.failure}",
                    level="warn",
                    experiment_id=result.experiment_id,
                )
            is_due = result.experiment_id in self._board.garbage
            transaction.update_experiment(result.experiment_id, gc_is_due=is_due)
        self._results.clear()

    async def close(self) -> None:
        """Stop after the checkpoint that is being deleted; the rest is still due."""
        self._is_closing = True
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _see_through(self, experiment_id: int) -> None:
        try:
            result = await asyncio.to_thread(self._collect, experiment_id)
            if not self._is_closing:
                self._results.append(result)
        finally:
            self._task = None
            self._changed.set()

    def _collect(self, experiment_id: int) -> _Result:
        reader = Reader(self._board.home.path)
        result = _Result(experiment_id, [])
        try:
            experiment = reader.experiment(experiment_id)
            assert experiment is not None
            section = experiment.config["checkpoint_storage"]
            policy = Retention(
                section["save_experiment_best"],
                section["save_trial_best"],
                section["save_trial_latest"],
            )
            storage = build(section)
            for rated in reader.garbage(experiment_id, policy):
                if self._is_closing:
                    break
                storage.delete(rated.checkpoint.uuid, _EVERYTHING)
                result.deleted.append(rated.checkpoint.uuid)
        except Exception as error:
            logger.exception("checkpoints of experiment %s could not be collected", experiment_id)
            result.failure = f"{type(error).__name__}: {error}"
        finally:
            reader.close()
        return result
