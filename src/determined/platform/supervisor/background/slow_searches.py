"""Searches that take time to decide: they process their events outside the loop.

Events wait in the store until what they led to is recorded with them, so each counts once. An
experiment's search processes them in order, a few at a time; nothing else touches it meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from determined.platform.search.searcher import Step
from determined.platform.supervisor.decisions import Decisions
from determined.platform.supervisor.fault_isolation import FaultySearch, isolating
from determined.platform.supervisor.live_state import LiveExperiment, LiveState
from determined.store import Transaction

_LONGEST_ROUND_SECONDS = 0.1


@dataclass
class _Result:
    live: LiveExperiment
    steps: list[Step] = field(default_factory=list)
    error: Exception | None = None


class SlowSearches:
    """Runs such searches, each in a thread. `changed` wakes the loop."""

    def __init__(self, live_state: LiveState, changed: asyncio.Event) -> None:
        self._live_state = live_state
        self._changed = changed
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._results: dict[int, _Result] = {}
        self._helped: list[LiveExperiment] = []

    @property
    def has_results(self) -> bool:
        """Whether something was decided that is not recorded yet."""
        return bool(self._results)

    @property
    def is_busy(self) -> bool:
        return False  # an experiment with pending events is itself a reason to stay

    def load(self, transaction: Transaction) -> None:
        """Pending events are read together with their experiment."""

    def act(self) -> None:
        """Run the searches that have new events; close the helpers of those that ended."""
        for live in self._live_state.experiments.values():
            if live.pending_events and live.id not in self._tasks and live.id not in self._results:
                if live not in self._helped:
                    self._helped.append(live)
                work = self._run(live)
                self._tasks[live.id] = asyncio.get_running_loop().create_task(work)
        self._close_helpers()

    def record(self, decisions: Decisions) -> None:
        """Record what was decided, and what follows from it."""
        results, self._results = self._results, {}
        for experiment_id, result in results.items():
            if self._live_state.experiments.get(experiment_id) is not result.live:
                continue  # it was reloaded from the store: it will be asked again
            decisions.search_steps.decided(result.live, result.steps)
            with isolating(FaultySearch(experiment_id)):
                if result.error is not None:
                    raise result.error

    async def close(self) -> None:
        """End all helpers; what they were asked is asked again next time."""
        for live in self._helped:
            if live.helper is not None:
                live.helper.abort()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()
        for live in self._helped:
            if live.helper is not None:
                live.helper.close()

    async def _run(self, live: LiveExperiment) -> None:
        results = await asyncio.to_thread(_process, live)
        del self._tasks[live.id]
        self._results[live.id] = results
        self._changed.set()

    def _close_helpers(self) -> None:
        for live in list(self._helped):
            is_current = self._live_state.experiments.get(live.id) is live
            if not is_current and live.id not in self._tasks:
                self._helped.remove(live)
                if live.helper is not None:
                    live.helper.close()


def _process(live: LiveExperiment) -> _Result:
    """Pass the waiting events; stop after a moment, so that the first decisions take effect."""
    result = _Result(live)
    started = time.monotonic()
    searcher = live.searcher
    assert searcher is not None
    try:
        for _, event in list(live.pending_events):
            result.steps.append(searcher.handle(event))
            if time.monotonic() - started > _LONGEST_ROUND_SECONDS:
                break
    except Exception as error:
        result.error = error
    return result
