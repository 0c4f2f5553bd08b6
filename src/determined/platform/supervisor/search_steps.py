"""Tell a search about events, and carry out what it decides."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from determined.platform.rules.states import State, more_severe
from determined.platform.search import events as search
from determined.platform.search.searcher import Step
from determined.platform.supervisor.background.calls import calls_at_end
from determined.platform.supervisor.changes import Changes
from determined.platform.supervisor.fault_isolation import BadSearch, blaming
from determined.platform.supervisor.forks import add_fork
from determined.platform.supervisor.live_state import LiveExperiment
from determined.store import NewTrial

_SMALLEST_PROGRESS = 0.001


class SearchSteps(Changes):
    """Events go to the search one by one; each of its actions is a change."""

    def feed(self, live: LiveExperiment, event: search.Event) -> None:
        self.follow(live, [event])

    def follow(self, live: LiveExperiment, events: Iterable[search.Event]) -> None:
        """Pass events to the search, carry out its decisions, and repeat with what follows."""
        if live.helper is not None:
            self._leave_unheard(live, events)
            return
        waiting = deque(events)
        while waiting and (searcher := live.searcher) is not None:
            with blaming(BadSearch(live.id)):
                step = searcher.handle(waiting.popleft())
            is_due = searcher.snapshot_is_due or searcher.is_over
            waiting.extend(self._record_step(live, step, is_due))
        self._show_progress(live)
        self.end_if_over(live)

    def _leave_unheard(self, live: LiveExperiment, events: Iterable[search.Event]) -> None:
        """Store events for a search that processes them outside the loop."""
        for event in events:
            number = self._transaction.keep_unheard(live.id, {"event": search.to_json(event)})
            live.unheard.append((number, event))

    def decided(self, live: LiveExperiment, steps: list[Step]) -> None:
        """A search has processed, outside the loop, the first of the events stored for it."""
        if live.searcher is None:
            return  # it failed meanwhile
        for i, step in enumerate(steps, start=1):
            number, _ = live.unheard.popleft()
            # It has processed all of these steps, so its snapshot belongs to the last one.
            is_due = i == len(steps) and (live.searcher.snapshot_is_due or live.searcher.is_over)
            self._leave_unheard(live, self._record_step(live, step, is_due, number))
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
        if live.unheard and live.has_unheard_exit(getattr(action, "request_id", "")):
            return []  # the trial ended while the search was deciding
        if isinstance(action, search.Create):
            return self._create_trial(live, action)
        if isinstance(action, search.Shutdown):
            return self._shut_down(live, action)
        if isinstance(action, search.PauseExperiment):
            if live.state is State.ACTIVE:
                self.hold(live, action.reason)
                self.note(live, "paused", action.reason, level="warn")
        elif isinstance(action, (search.Stop, search.FailTrial)):
            trial = self._transaction.trial(live.requests[action.request_id])
            wanted = State.STOPPING_COMPLETED
            if isinstance(action, search.FailTrial):
                wanted = State.STOPPING_ERROR
            if not State(trial.state).is_terminal:
                state = more_severe(State(trial.state), wanted)
                return self.stop_trial(live, trial, state, action.reason)
        elif isinstance(action, search.Pause):
            trial_id = live.requests[action.request_id]
            self.set_trial(live, trial_id, is_held=True, reason=action.reason)
            if trial_id not in self._board.runs:
                return [search.TrialPaused(action.request_id)]
        elif isinstance(action, search.Resume):
            self._resume(live, action)
        elif isinstance(action, search.FreeCheckpoints):
            self.collect_garbage(live)
        return []

    def _create_trial(self, live: LiveExperiment, action: search.Create) -> list[search.Event]:
        state = State.PAUSED if live.state is State.PAUSED else State.ACTIVE
        fork = live.record.environment.get("fork")
        trial = self._transaction.create_trial(
            NewTrial(
                live.id,
                action.request_id,
                action.trial_seed if fork is None else fork["trial_seed"],
                action.hparams if fork is None else fork["hparams"],
                state.value,
                live.record.environment.get("warm_start"),
            )
        )
        if fork is not None:
            add_fork(self._transaction, trial, fork)
        self._board.version += 1
        live.trials[trial.id] = trial
        live.requests[trial.request_id] = trial.id
        created = search.TrialCreated(trial.request_id)
        if live.state.is_stopping:  # it began to stop after the search was asked
            return [created, *self.stop_trial(live, trial, live.state, live.record.reason)]
        return [created]

    def _resume(self, live: LiveExperiment, action: search.Resume) -> None:
        trial = self._transaction.trial(live.requests[action.request_id])
        changes: dict[str, Any] = {"is_held": False, "reason": action.reason}
        if State(trial.state).is_terminal:
            state = State.PAUSED if live.state is State.PAUSED else State.ACTIVE
            changes |= {"state": state.value, "restarts": 0, "last_error": "", "early_exit": None}
        self.set_trial(live, trial.id, **changes)

    def _shut_down(self, live: LiveExperiment, action: search.Shutdown) -> list[search.Event]:
        outcome = State.STOPPING_COMPLETED
        if action.failure:
            outcome = State.STOPPING_ERROR
        elif action.cancel:
            outcome = State.STOPPING_CANCELED
        if not live.state.is_stopping:
            self.set_experiment(live, outcome, action.reason)
        events = []
        for trial in list(live.trials.values()):  # a method that failed leaves some behind
            state = more_severe(State(trial.state), State.STOPPING_CANCELED)
            events += self.stop_trial(live, trial, state, "canceled: the search is over")
        return events

    def end_if_over(self, live: LiveExperiment) -> None:
        if not live.state.is_stopping or live.trials or live.unheard:
            return
        outcome = live.state.outcome
        changes: dict[str, Any] = {}
        if outcome is State.COMPLETED:
            changes["progress"] = 1.0
        if calls := calls_at_end(live.record.config["integrations"], outcome):
            changes["environment"] = live.record.environment | {"calls": calls}
        self.set_experiment(live, outcome, live.record.reason, **changes)
        self.collect_garbage(live)
        self.note(live, "ended", f"{outcome.value}: {live.record.reason}")
        del self._board.experiments[live.id]

    def _show_progress(self, live: LiveExperiment) -> None:
        if live.searcher is None or live.searcher.is_over:
            return  # how it ended decides
        progress = live.searcher.progress()
        if abs(progress - live.record.progress) >= _SMALLEST_PROGRESS:
            self.set_experiment(live, live.state, live.record.reason, progress=progress)
