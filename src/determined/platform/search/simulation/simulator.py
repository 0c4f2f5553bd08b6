"""Run a search in virtual time on virtual slots, from learning curves.

No clock and no processes: ten thousand trials on a thousand slots take seconds.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from determined.platform.search import events as e
from determined.platform.search.searcher import Searcher, Step


class Curves(Protocol):
    """What training would report."""

    def value(self, hparams: dict[str, Any], seed: int, units: int) -> float:
        """Return the metric after `units` of training."""
        ...

    def seconds(self, hparams: dict[str, Any], seed: int) -> float:
        """Return how long one unit of training takes."""
        ...


@dataclass(slots=True)
class Outcome:
    """What a simulated search did."""

    seconds: float = 0.0
    units: int = 0  # total training
    num_trials: int = 0
    num_decisions: int = 0
    num_full: int = 0  # trials that trained to the end
    stopped_at: dict[int, int] = field(default_factory=dict)  # units -> trials that ended there
    best: list[tuple[int, float]] = field(default_factory=list)  # (units so far, new best metric)
    steps: list[Step] = field(default_factory=list)  # with `keep_steps`
    is_over: bool = False


@dataclass(slots=True)
class _Run:
    action: e.Create
    units: int = 0
    is_running: bool = False


class Simulator:
    """Feeds a searcher the events that trials with these curves would cause.

    Args:
        searcher: the search, not started yet.
        curves: what trials report.
        num_slots: trials that can train at once.
        validate_at: the units at which trials validate, ascending; the last is their length.
        max_units: end after this much training in total, whatever the search wants.
        keep_steps: whether the outcome has every step.
    """

    def __init__(
        self,
        searcher: Searcher,
        curves: Curves,
        num_slots: int,
        validate_at: Sequence[int],
        max_units: int | None = None,
        keep_steps: bool = False,
    ) -> None:
        self._searcher, self._curves, self._num_slots = searcher, curves, num_slots
        self._validate_at = tuple(validate_at)
        self._next = dict(zip((0, *validate_at), validate_at, strict=False))
        self._max_units = max_units
        self._keep_steps = keep_steps
        self._settings = searcher.settings
        self._runs: dict[str, _Run] = {}
        self._queue: deque[str] = deque()
        self._events: deque[e.Event] = deque()
        self._training: list[tuple[float, int, str]] = []  # a heap: (when it validates, order, id)
        self._order = 0
        self._outcome = Outcome()

    def run(self, first: e.Event | None = None) -> Outcome:
        """Run until the search is over, the budget is used up, or nothing can happen any more."""
        outcome = self._outcome
        self._handle(first or e.InitialTrials())
        self._start(0.0)
        while self._training and not outcome.is_over:
            now, _, request_id = heapq.heappop(self._training)
            outcome.seconds = now
            self._validate(request_id, now)
            if self._max_units is not None and outcome.units >= self._max_units:
                break
            self._start(now)
        outcome.num_trials = len(self._runs)
        return outcome

    def _start(self, now: float) -> None:
        while self._queue and len(self._training) < self._num_slots:
            request_id = self._queue.popleft()
            run = self._runs[request_id]
            if not run.is_running:  # stopped before it got a slot
                continue
            self._train_on(request_id, run, now)

    def _train_on(self, request_id: str, run: _Run, now: float) -> None:
        seconds = self._curves.seconds(run.action.hparams, run.action.trial_seed)
        until = self._next.get(run.units, run.units)
        self._order += 1
        when = now + (until - run.units) * seconds
        heapq.heappush(self._training, (when, self._order, request_id))

    def _validate(self, request_id: str, now: float) -> None:
        run, outcome = self._runs[request_id], self._outcome
        until = self._next.get(run.units, run.units)
        outcome.units += until - run.units
        run.units = until
        value = self._curves.value(run.action.hparams, run.action.trial_seed, until)
        self._note_best(value)
        metrics = {self._settings.metric: value, self._settings.time_metric: until}
        self._handle(e.ValidationCompleted(request_id, metrics, until))
        if not run.is_running:
            return
        if until == self._validate_at[-1]:
            self._end_run(run, e.TrialExited(request_id))
            self._drain()
        else:
            self._train_on(request_id, run, now)

    def _note_best(self, value: float) -> None:
        best = self._outcome.best
        sign = 1 if self._settings.smaller_is_better else -1
        if value == value and (not best or sign * value < sign * best[-1][1]):
            best.append((self._outcome.units, value))

    def _handle(self, event: e.Event) -> None:
        self._events.append(event)
        self._drain()

    def _drain(self) -> None:
        while self._events:
            step = self._searcher.handle(self._events.popleft())
            self._outcome.num_decisions += len(step.actions)
            if self._keep_steps:
                self._outcome.steps.append(step)
            for action in step.actions:
                self._act(action)

    def _act(self, action: e.Action) -> None:
        if isinstance(action, e.Create):
            begun = self._runs[action.parent_id].units if isinstance(action, e.Fork) else 0
            self._runs[action.request_id] = _Run(action, begun, is_running=True)
            self._queue.append(action.request_id)
        elif isinstance(action, e.Resume):
            self._runs[action.request_id].is_running = True
            self._queue.append(action.request_id)
        elif isinstance(action, e.Stop):
            self._end_run(self._runs[action.request_id], e.TrialExited(action.request_id))
        elif isinstance(action, e.Pause):
            self._runs[action.request_id].is_running = False
            self._events.append(e.TrialPaused(action.request_id))
        elif isinstance(action, e.FailTrial):
            early = e.TrialExitedEarly(action.request_id, e.ERRORED)
            self._runs[action.request_id].is_running = False
            self._events.extend((early, e.TrialExited(action.request_id)))
        elif isinstance(action, e.Shutdown):
            self._outcome.is_over = True

    def _end_run(self, run: _Run, event: e.Event) -> None:
        run.is_running = False
        outcome = self._outcome
        outcome.stopped_at[run.units] = outcome.stopped_at.get(run.units, 0) + 1
        outcome.num_full += run.units == self._validate_at[-1]
        self._events.append(event)


def simulate(
    searcher: Searcher,
    curves: Curves,
    num_slots: int,
    validate_at: Sequence[int],
    max_units: int | None = None,
    keep_steps: bool = False,
) -> Outcome:
    """Run a search from its start; see `Simulator`."""
    return Simulator(searcher, curves, num_slots, validate_at, max_units, keep_steps).run()
