"""Single changes, each made in the store and in the live state together.

If the transaction fails, the live state is read from the store again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from determined.platform.rules.states import State
from determined.platform.search import events as search
from determined.platform.supervisor.live_state import LiveExperiment, LiveState
from determined.store import Transaction, Trial


class Changes:
    """What commands, ends of runs and searches change in one transaction."""

    def __init__(self, live_state: LiveState, transaction: Transaction) -> None:
        self._live_state = live_state
        self._transaction = transaction

    def stop_trial(
        self, live: LiveExperiment, trial: Trial, state: State, reason: str
    ) -> list[search.Event]:
        """Stop a trial; one without a run ends at once. Return the events for the search."""
        if trial.id in self._live_state.runs:
            self.set_trial(live, trial.id, state=state.value, reason=reason)
            return []
        if not state.is_stopping:
            return []
        early = {
            State.STOPPING_CANCELED: search.USER_CANCELED,
            State.STOPPING_KILLED: search.USER_CANCELED,
            State.STOPPING_ERROR: search.ERRORED,
        }.get(state)
        return self.close(live, trial, state.outcome, reason, early, None, {})

    def close(
        self,
        live: LiveExperiment,
        trial: Trial,
        state: State,
        reason: str,
        early: str | None,
        digest: str | None,
        changes: dict[str, Any],
    ) -> list[search.Event]:
        """End a trial that has no run. Return the events for the search."""
        self._transaction.update_trial(
            trial.id, state=state.value, reason=reason, is_held=False, **changes
        )
        live.trials.pop(trial.id, None)
        self._live_state.version += 1
        events: list[search.Event] = []
        if early is not None:
            progressed = trial.total_batches > 0
            events.append(
                search.TrialExitedEarly(trial.request_id, early, digest, progressed=progressed)
            )
        return [*events, search.TrialExited(trial.request_id)]

    def hold(self, live: LiveExperiment, reason: str) -> None:
        """Pause an experiment and its trials."""
        self.set_experiment(live, State.PAUSED, reason)
        self.set_trials(live, State.ACTIVE, State.PAUSED)

    def set_trials(self, live: LiveExperiment, old: State, new: State) -> None:
        for trial in list(live.trials.values()):
            if trial.state == old.value:
                self.set_trial(live, trial.id, state=new.value, not_before=0.0)

    def set_trial(self, live: LiveExperiment, trial_id: int, **changes: Any) -> None:
        self._transaction.update_trial(trial_id, **changes)
        live.trials[trial_id] = self._transaction.trial(trial_id)
        self._live_state.version += 1

    def set_experiment(
        self, live: LiveExperiment, state: State, reason: str, **changes: Any
    ) -> None:
        self._live_state.version += live.record.state != state.value
        self._transaction.update_experiment(live.id, state=state.value, reason=reason, **changes)
        live.record = self._transaction.experiment(live.id)

    def collect_garbage(self, live: LiveExperiment) -> None:
        """Have the checkpoints that no rule keeps deleted."""
        self.collect_garbage_of([live.id])

    def collect_garbage_of(self, experiment_ids: Iterable[int]) -> None:
        """The same for experiments that may have ended."""
        for experiment_id in experiment_ids:
            self._live_state.garbage.add(experiment_id)
            self._transaction.update_experiment(experiment_id, gc_is_due=True)

    def note(
        self,
        live: LiveExperiment,
        kind: str,
        text: str,
        trial_id: int | None = None,
        run_id: int | None = None,
        level: str = "info",
    ) -> None:
        self._transaction.note(
            kind, text, level=level, experiment_id=live.id, trial_id=trial_id, run_id=run_id
        )
