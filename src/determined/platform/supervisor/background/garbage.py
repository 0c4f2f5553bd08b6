"""Find checkpoints that no rule keeps, and mark them for deletion.

The store is queried when a collection is due, so one that was interrupted starts over. A checkpoint
that came into use meanwhile is kept. `deletions.py` deletes the files.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

from determined.platform.rules.gc_policy import policy_of
from determined.platform.supervisor.decisions import Decisions
from determined.platform.supervisor.live_state import LiveState
from determined.store import Reader, Transaction

logger = logging.getLogger("determined.supervisor")


@dataclass
class _Result:
    experiment_id: int
    garbage: list[str] = field(default_factory=list)
    failure: str = ""


class GarbageCollection:
    """Works through the experiments that are due, one after the other, outside the loop."""

    def __init__(self, live_state: LiveState, changed: asyncio.Event) -> None:
        self._live_state = live_state
        self._changed = changed
        self._due: set[int] = set()
        self._results: list[_Result] = []
        self._task: asyncio.Task[None] | None = None

    def load(self, transaction: Transaction) -> None:
        """Read which experiments are due."""
        done = {result.experiment_id for result in self._results}
        self._due = set() if self._live_state.is_copy else set(transaction.with_garbage()) - done

    @property
    def has_results(self) -> bool:
        """Whether garbage was found that is not recorded yet."""
        return bool(self._results)

    @property
    def is_busy(self) -> bool:
        return self._task is not None or bool(self._due) or bool(self._results)

    def act(self) -> None:
        """Start with the next experiment."""
        if self._task is None and self._due:
            experiment_id = min(self._due)
            self._live_state.garbage.discard(
                experiment_id
            )  # later requests need another collection
            self._task = asyncio.get_running_loop().create_task(self._collect(experiment_id))

    def record(self, decisions: Decisions) -> None:
        """Mark what was found for deletion."""
        transaction = decisions.transaction
        for result in self._results:
            experiment_id = result.experiment_id
            if experiment_id not in transaction.with_garbage():
                continue  # it is being deleted
            in_use = transaction.deletions.in_use(result.garbage)
            for uuid in result.garbage:
                if uuid not in in_use:
                    transaction.deletions.begin(uuid)
            if result.failure:
                text = f"checkpoints could not be collected: {result.failure}"
                transaction.note("garbage", text, level="warn", experiment_id=experiment_id)
            is_due = experiment_id in self._live_state.garbage
            transaction.update_experiment(experiment_id, gc_is_due=is_due)
        self._results.clear()

    async def close(self) -> None:
        """Wait for the current collection; what it finds is still due."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _collect(self, experiment_id: int) -> None:
        try:
            self._results.append(await asyncio.to_thread(self._find, experiment_id))
        finally:
            self._task = None
            self._changed.set()

    def _find(self, experiment_id: int) -> _Result:
        reader = Reader(self._live_state.home.path)
        result = _Result(experiment_id)
        try:
            experiment = reader.experiment(experiment_id)
            if experiment is not None:
                found = reader.garbage(experiment_id, policy_of(experiment))
                result.garbage = [rated.checkpoint.uuid for rated in found]
        except Exception as error:
            logger.exception("checkpoints of experiment %s could not be collected", experiment_id)
            result.failure = f"{type(error).__name__}: {error}"
        finally:
            reader.close()
        return result
