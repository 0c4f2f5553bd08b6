"""Tell a search about events, and carry out what it decides."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from determined.platform.rules.states import State, more_severe
from determined.platform.search import events as search
from determined.platform.search.searcher import Step
from determined.platform.supervisor.changes import Changes
from determined.platform.supervisor.fault_isolation import FaultySearch, isolating
from determined.platform.supervisor.forks import add_fork, add_fork_of_search
from determined.platform.supervisor.live_state import LiveExperiment, LiveState
from determined.store import NewTrial, Transaction

if TYPE_CHECKING:
    from determined.config.model.sections import Integrations

_SMALLEST_PROGRESS = 0.001


class SearchSteps:
    """Events go to the search one by one; each of its actions is a change."""

    def __init__(self, live_state: LiveState, transaction: Transaction, changes: Changes) -> None:
        self._live_state = live_state
        self._transaction = transaction
        self._changes = changes

    def feed(self, live: LiveExperiment, event: search.Event) -> None:
        """Pass one event to the search."""
        self.follow(live, [event])

    def follow(self, live: LiveExperiment, events: Iterable[search.Event]) -> None:
        """Pass events to the search, carry out its decisions, and repeat with what follows."""
        if live.helper is not None:
            self._defer(live, events)
            return
        waiting = deque(events)
        while waiting and (searcher := live.searcher) is not None:
            with isolating(FaultySearch(live.id)):
                step = searcher.handle(waiting.popleft())
            is_due = searcher.snapshot_is_due or searcher.is_over
            waiting.extend(self._record_step(live, step, is_due))
        self._show_progress(live)
        self.end_if_over(live)

    def _defer(self, live: LiveExperiment, events: Iterable[search.Event]) -> None:
        """Store events for a search that processes them outside the loop."""
        for event in events:
            number = self._transaction.add_pending_event(live.id, {"event": search.to_json(event)})
            live.pending_events.append((number, event))

    def decided(self, live: LiveExperiment, steps: list[Step]) -> None:
        """A search has processed, outside the loop, the first of the events stored for it."""
        if live.searcher is None:
            return  # it failed meanwhile
        for i, step in enumerate(steps, start=1):
            number, _ = live.pending_events.popleft()
            # It has processed all of these steps, so its snapshot belongs to the last one.
            is_due = i == len(steps) and (live.searcher.snapshot_is_due or live.searcher.is_over)
            self._defer(live, self._record_step(live, step, is_due, number))
        self._show_progress(live)
        self.end_if_over(live)

    def _record_step(
        self, live: LiveExperiment, step: Step, with_snapshot: bool, number: int | None = None
    ) -> list[search.Event]:
        """Record what an event led to, carry it out, and return the events for the search."""
        assert live.searcher is not None
        reasons = [getattr(action, "reason", "") for action in step.actions]
        self._transaction.record_search(
            live.id,
            live.searcher.snapshot() if with_snapshot else None,
            step.record,
            [search.to_json(action) for action in step.actions],
            " ".join(reason for reason in reasons if reason),
            number,
        )
        return [event for action in step.actions for event in self._carry_out(live, action)]

    def _carry_out(self, live: LiveExperiment, action: search.Action) -> list[search.Event]:
        if live.pending_events and live.has_pending_exit(getattr(action, "request_id", "")):
            return []  # the trial ended while the search was deciding
        if isinstance(action, search.Create):
            return self._create_trial(live, action)
        if isinstance(action, search.Shutdown):
            return self._shut_down(live, action)
        if isinstance(action, search.PauseExperiment):
            if live.state is State.ACTIVE:
                self._changes.hold(live, action.reason)
                self._changes.note(live, "paused", action.reason, level="warn")
        elif isinstance(action, (search.Stop, search.FailTrial)):
            trial = self._transaction.trial(live.requests[action.request_id])
            wanted = State.STOPPING_COMPLETED
            if isinstance(action, search.FailTrial):
                wanted = State.STOPPING_ERROR
            if not State(trial.state).is_terminal:
                state = more_severe(State(trial.state), wanted)
                return self._changes.stop_trial(live, trial, state, action.reason)
        elif isinstance(action, search.Pause):
            trial_id = live.requests[action.request_id]
            self._changes.set_trial(live, trial_id, is_held=True, reason=action.reason)
            if trial_id not in self._live_state.runs:
                return [search.TrialPaused(action.request_id)]
        elif isinstance(action, search.Resume):
            self._resume(live, action)
        elif isinstance(action, search.FreeCheckpoints):
            self._changes.collect_garbage(live)
        return []

    def _create_trial(self, live: LiveExperiment, action: search.Create) -> list[search.Event]:
        state = State.PAUSED if live.state is State.PAUSED else State.ACTIVE
        fork, parent = live.record.environment.get("fork"), None
        new = NewTrial(
            live.id,
            action.request_id,
            action.trial_seed if fork is None else fork["trial_seed"],
            action.hparams if fork is None else fork["hparams"],
            state.value,
            live.record.environment.get("warm_start"),
        )
        if isinstance(action, search.Fork):
            parent = self._transaction.trial(live.requests[action.parent_id])
            # Its data continues where its parent's was, so it differs by what changed alone.
            new = dataclasses.replace(new, seed=parent.seed)
        trial = self._transaction.create_trial(new)
        if isinstance(action, search.Fork) and parent is not None:
            add_fork_of_search(self._transaction, trial, parent, action)
        elif fork is not None:
            add_fork(self._transaction, trial, fork)
        self._live_state.version += 1
        live.trials[trial.id] = trial
        live.requests[trial.request_id] = trial.id
        created = search.TrialCreated(trial.request_id)
        if live.state.is_stopping:  # it began to stop after the search was asked
            return [created, *self._changes.stop_trial(live, trial, live.state, live.record.reason)]
        return [created]

    def _resume(self, live: LiveExperiment, action: search.Resume) -> None:
        trial = self._transaction.trial(live.requests[action.request_id])
        changes: dict[str, Any] = {"is_held": False, "reason": action.reason}
        if State(trial.state).is_terminal:
            state = State.PAUSED if live.state is State.PAUSED else State.ACTIVE
            changes |= {"state": state.value, "restarts": 0, "last_error": "", "early_exit": None}
        self._changes.set_trial(live, trial.id, **changes)

    def _shut_down(self, live: LiveExperiment, action: search.Shutdown) -> list[search.Event]:
        outcome = State.STOPPING_COMPLETED
        if action.failure:
            outcome = State.STOPPING_ERROR
        elif action.cancel:
            outcome = State.STOPPING_CANCELED
        if not live.state.is_stopping:
            self._changes.set_experiment(live, outcome, action.reason)
        events = []
        for trial in list(live.trials.values()):  # a method that failed leaves some behind
            state = more_severe(State(trial.state), State.STOPPING_CANCELED)
            events += self._changes.stop_trial(live, trial, state, "canceled: the search is over")
        return events

    def end_if_over(self, live: LiveExperiment) -> None:
        """End an experiment that is stopping, once its last trial has ended."""
        if not live.state.is_stopping or live.trials or live.pending_events:
            return
        outcome = live.state.outcome
        changes: dict[str, Any] = {}
        if outcome is State.COMPLETED:
            changes["progress"] = 1.0
        if calls := _calls_at_end(live.record.configuration.integrations, outcome):
            changes["environment"] = live.record.environment | {"calls": calls}
        self._changes.set_experiment(live, outcome, live.record.reason, **changes)
        self._changes.collect_garbage(live)
        self._changes.note(live, "ended", f"{outcome.value}: {live.record.reason}")
        del self._live_state.experiments[live.id]

    def _show_progress(self, live: LiveExperiment) -> None:
        if live.searcher is None or live.searcher.is_over:
            return  # how it ended decides
        progress = live.searcher.progress()
        if abs(progress - live.record.progress) >= _SMALLEST_PROGRESS:
            self._changes.set_experiment(live, live.state, live.record.reason, progress=progress)


def _calls_at_end(integrations: Integrations, outcome: State) -> list[str]:
    """The configured calls that are due when an experiment has ended."""
    names = ["on_end", "on_failure"] if outcome is State.ERROR else ["on_end"]
    return [name for name in names if getattr(integrations, name)]
