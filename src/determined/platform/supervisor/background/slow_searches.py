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
from determined.platform.supervisor.fault_isolation import BadSearch, blaming
from determined.platform.supervisor.live_state import Board, LiveExperiment

_LONGEST_ROUND_SECONDS = 0.1


@dataclass
class _Answers:
    live: LiveExperiment
    steps: list[Step] = field(default_factory=list)
    error: Exception | None = None


class Thinking:
    """Runs such searches, each in a thread. `changed` wakes the loop."""

    def __init__(self, board: Board, changed: asyncio.Event) -> None:
        self._board = board
        self._changed = changed
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._answers: dict[int, _Answers] = {}
        self._helped: list[LiveExperiment] = []

    @property
    def has_answers(self) -> bool:
        """Whether something was decided that is not recorded yet."""
        return bool(self._answers)

    def act(self) -> None:
        """Run the searches that have new events; close the helpers of those that ended."""
        for live in self._board.experiments.values():
            if live.unheard and live.id not in self._tasks and live.id not in self._answers:
                if live not in self._helped:
                    self._helped.append(live)
                work = self._see_through(live)
                self._tasks[live.id] = asyncio.get_running_loop().create_task(work)
        self._dismiss()

    def record(self, decisions: Decisions) -> None:
        """Record what was decided, and what follows from it."""
        answers, self._answers = self._answers, {}
        for experiment_id, answer in answers.items():
            if self._board.experiments.get(experiment_id) is not answer.live:
                continue  # it was reloaded from the store: it will be asked again
            decisions.decided(answer.live, answer.steps)
            with blaming(BadSearch(experiment_id)):
                if answer.error is not None:
                    raise answer.error

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

    async def _see_through(self, live: LiveExperiment) -> None:
        answers = await asyncio.to_thread(_think, live)
        del self._tasks[live.id]
        self._answers[live.id] = answers
        self._changed.set()

    def _dismiss(self) -> None:
        for live in list(self._helped):
            is_current = self._board.experiments.get(live.id) is live
            if not is_current and live.id not in self._tasks:
                self._helped.remove(live)
                if live.helper is not None:
                    live.helper.close()


def _think(live: LiveExperiment) -> _Answers:
    """Pass the waiting events; stop after a moment, so that the first decisions take effect."""
    answers = _Answers(live)
    started = time.monotonic()
    searcher = live.searcher
    assert searcher is not None
    try:
        for _, event in list(live.unheard):
            answers.steps.append(searcher.handle(event))
            if time.monotonic() - started > _LONGEST_ROUND_SECONDS:
                break
    except Exception as error:
        answers.error = error
    return answers
