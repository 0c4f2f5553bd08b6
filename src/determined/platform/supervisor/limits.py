"""How long experiments and trials have run, and which have exceeded their limit.

For those that a supervisor finds at its start, the time of day tells how long they have run. From
then on elapsed time is added up, so that a change of the clock neither ends a run nor extends it.
"""

from __future__ import annotations

import time

from determined.platform.rules.states import State
from determined.platform.supervisor.live_state import LiveExperiment, LiveState

Overdue = tuple[LiveExperiment, int | None, str]  # the id of a trial, and the limit
_Key = tuple[int, int | None]  # an experiment, or one of its trials


class Limits:
    """Enforces `max_wall_time`, `max_slot_time` and `max_trial_wall_time`."""

    def __init__(self, live_state: LiveState) -> None:
        self._live_state = live_state
        self._seconds: dict[_Key, float] = {}
        self._slot_seconds: dict[int, float] = {}
        self._looked = time.monotonic()

    def overdue(self) -> list[Overdue]:
        """The experiments and trials that have run longer than their limit."""
        now, before = time.monotonic(), self._looked
        self._looked, passed = now, now - before
        live = self._live_state.experiments
        self._seconds = {key: value for key, value in self._seconds.items() if key[0] in live}
        self._slot_seconds = {key: n for key, n in self._slot_seconds.items() if key in live}
        return [*self._experiments(passed), *self._slots(passed), *self._trials(passed)]

    def _experiments(self, passed: float) -> list[Overdue]:
        found: list[Overdue] = []
        for live in self._live_state.experiments.values():
            limit, started = live.record.configuration.max_wall_time, live.record.started
            if limit is None or started is None or live.state not in (State.ACTIVE, State.PAUSED):
                continue
            if self._add((live.id, None), passed, started) >= limit:
                found.append((live, None, f"max_wall_time ({limit:g} s)"))
        return found

    def _slots(self, passed: float) -> list[Overdue]:
        """Count the time of all slots that an experiment holds."""
        found: list[Overdue] = []
        for live in self._live_state.experiments.values():
            limit = live.record.configuration.max_slot_time
            if limit is None or live.state not in (State.ACTIVE, State.PAUSED):
                continue
            runs = [run for run in self._live_state.runs.values() if run.experiment_id == live.id]
            if live.id in self._slot_seconds:
                self._slot_seconds[live.id] += passed * sum(len(run.slots) for run in runs)
            else:
                now = time.time()
                self._slot_seconds[live.id] = live.slot_seconds_before + sum(
                    len(run.slots) * max(0.0, now - run.created) for run in runs
                )
            if self._slot_seconds[live.id] >= limit:
                found.append((live, None, f"max_slot_time ({limit:g} s)"))
        return found

    def _trials(self, passed: float) -> list[Overdue]:
        """Count the time of their runs, without pauses."""
        found: list[Overdue] = []
        for run in self._live_state.runs.values():
            live = self._live_state.experiments[run.experiment_id]
            trial = live.trials[run.trial_id]
            limit = live.record.configuration.max_trial_wall_time
            if limit is None:
                continue
            seconds = self._add((live.id, trial.id), passed, run.created - run.seconds_before)
            if trial.state == State.ACTIVE.value and seconds >= limit:
                found.append((live, trial.id, f"max_trial_wall_time ({limit:g} s)"))
        return found

    def _add(self, key: _Key, passed: float, began: float) -> float:
        """The seconds something has run; computed from the time of day when it is first seen."""
        if key in self._seconds:
            self._seconds[key] += passed
        else:
            self._seconds[key] = max(0.0, time.time() - began)
        return self._seconds[key]
