"""What a command, a report or the end of a run changes, within one transaction.

Every change goes to the store and to the board in the same breath. If the transaction fails, the
board is read anew.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable
from typing import Any

from determined.errors import StoreError
from determined.platform.home import Home
from determined.platform.lifecycle import RunEnd, TrialFacts, Verdict, after_run
from determined.platform.run_folder import RunExit
from determined.platform.search import events as search
from determined.platform.search.searcher import Step
from determined.platform.states import (
    Refused,
    State,
    activated,
    killed,
    more_severe,
    paused,
)
from determined.platform.supervisor._blame import BadSearch, blaming
from determined.platform.supervisor._board import Board, LiveExperiment, LiveRun, load_experiment
from determined.platform.supervisor._calls import calls_at_end
from determined.platform.supervisor._searches import check_search
from determined.store import Experiment, NewExperiment, NewTrial, Transaction, Trial

_SMALLEST_PROGRESS = 0.001


class Decisions:
    """The verbs of one tick. `now` is the time of day, for waits that outlive a restart."""

    def __init__(self, board: Board, transaction: Transaction, now: float) -> None:
        self._board = board
        self._transaction = transaction
        self._now = now

    @property
    def home(self) -> Home:
        return self._board.home

    # Verbs on experiments

    def create(self, new: NewExperiment) -> Experiment:
        """Add an experiment and ask its search for the first trials."""
        check_search(new.config)
        record = self._transaction.create_experiment(new)
        live = load_experiment(self._board.home, self._transaction, record)
        if live.searcher is None:
            raise StoreError(live.failure)
        self._board.experiments[record.id] = live
        self._feed(live, search.InitialTrials())
        return live.record

    def go_on(self, experiment_id: int, event: search.LimitsRaised) -> None:
        """Take a finished experiment up again; its search decides which trials run."""
        record = self._transaction.experiment(experiment_id)
        live = load_experiment(self._board.home, self._transaction, record)
        self._board.experiments[record.id] = live
        self._note(live, "continued", "continued by the user")
        self._feed(live, event)

    def pause(self, experiment_id: int, reason: str = "") -> None:
        live = self._live(experiment_id, "paused")
        self._set_experiment(live, paused(live.state, _named(live.record)), reason)
        self._set_trials(live, State.ACTIVE, State.PAUSED)

    def activate(self, experiment_id: int) -> None:
        live = self._live(experiment_id, "activated")
        self._set_experiment(live, activated(live.state, _named(live.record)), "")
        self._set_trials(live, State.PAUSED, State.ACTIVE)

    def cancel(self, experiment_id: int) -> None:
        self._stop_all(experiment_id, State.STOPPING_CANCELED, "canceled by the user")

    def kill(self, experiment_id: int) -> None:
        self._stop_all(experiment_id, State.STOPPING_KILLED, "killed by the user")

    def kill_trial(self, trial_id: int) -> None:
        """End one trial; its search hears that the user did it."""
        trial = self._transaction.trial(trial_id)
        live = self._board.experiments.get(trial.experiment_id)
        if live is not None and trial.id in live.trials:
            state = killed(State(trial.state))
            self._follow(live, self._stop_trial(live, trial, state, "killed by the user"))

    def end_for_time(self, live: LiveExperiment, trial: Trial | None, limit: str) -> None:
        """End a trial, or a whole experiment, whose time is up: with a checkpoint."""
        reason = f"reached {limit}"
        if trial is not None:
            state = more_severe(State(trial.state), State.STOPPING_COMPLETED)
            self._follow(live, self._stop_trial(live, trial, state, reason))
            return
        self._stop_all(live.id, State.STOPPING_COMPLETED, reason)

    def fail(self, live: LiveExperiment, reason: str) -> None:
        """End an experiment whose search cannot go on; nobody asks the search any more."""
        live.searcher = None
        live.unheard.clear()  # nobody will hear it
        if live.state is not State.STOPPING_ERROR:
            self._set_experiment(live, State.STOPPING_ERROR, reason)
            self._note(live, "failed", reason, level="error")
        for trial in list(live.trials.values()):
            state = more_severe(State(trial.state), State.STOPPING_ERROR)
            self._stop_trial(live, trial, state, reason)
        self._end_if_over(live)

    def fail_what_cannot_go_on(self) -> None:
        """End the experiments whose search could not be restored."""
        for live in list(self._board.experiments.values()):
            if live.searcher is None:
                self.fail(live, live.failure)

    # What runs say

    def validated(
        self, live: LiveExperiment, trial_id: int, metrics: dict[str, Any], steps: int
    ) -> None:
        """A trial reported a validation that the search does not know."""
        request_id = live.trials[trial_id].request_id
        self._feed(live, search.ValidationCompleted(request_id, metrics, steps))

    def progressed(self, live: LiveExperiment, trial_id: int) -> None:
        """A trial said how far it is: note it when it shows."""
        trial = self._transaction.trial(trial_id)
        live.trials[trial_id] = trial
        if live.is_news(trial_id, trial.progress):
            self._feed(live, search.Progress(trial.request_id, trial.progress))

    def exits_early(self, live: LiveExperiment, trial_id: int) -> None:
        """A trial said that it ends early: it has a moment to leave by itself."""
        live.trials[trial_id] = self._transaction.trial(trial_id)
        self._board.version += 1

    def refresh(self, experiment_id: int) -> None:
        """Read an experiment again whose fields were set."""
        live = self._board.experiments.get(experiment_id)
        if live is not None:
            live.record = self._transaction.experiment(experiment_id)
            self._board.version += 1

    # Runs

    def _has_come_further(self, run: LiveRun) -> bool:
        """Whether a run saved more than it started from; the same once more is no progress."""
        latest = self._transaction.latest_checkpoint(run.trial_id)
        if latest is None or latest.run_id != run.run_id:
            return False
        return run.from_checkpoint is None or latest.steps_completed > run.steps_completed

    def run_ended(self, run: LiveRun, end: RunExit) -> None:
        """All that a run had to say was read, and its processes are gone."""
        live = self._board.experiments[run.experiment_id]
        self._adopt(live, run)
        trial = self._transaction.trial(run.trial_id)
        recorded = self._transaction.run(run.trial_id, run.run_id)
        error = run.fault or _error_of(end, run)
        facts = TrialFacts(
            State(trial.state),
            trial.restarts,
            live.record.config["max_restarts"],
            trial.last_error,
        )
        verdict = after_run(
            facts,
            RunEnd(
                exit_code=_exit_code(end, run),
                is_acknowledged=recorded.acknowledged,
                is_invalid_hp=is_invalid_hp(trial),
                brought_checkpoint=self._has_come_further(run),
                was_killed_by_us=end.stopped_by is not None and not run.fault,
                lasted_seconds=self._now - run.created,
                cancels_retries=any(match.action == "cancel_retries" for match in end.matches),
                error=error,
            ),
        )
        self._transaction.end_run(run.trial_id, run.run_id, end.exit_code, verdict.reason)
        del self._board.runs[run.trial_id]
        self._board.version += 1
        is_failure = bool(end.exit_code and not end.stopped_by)
        level = "warn" if is_failure or run.fault else "info"
        self._note(live, "run_ended", verdict.reason, trial.id, run.run_id, level)
        for match in end.matches:
            text = f"log policy {match.name!r} matched line {match.line + 1}: {match.text}"
            self._note(live, "log_policy", text, trial.id, run.run_id, "warn")
        self._apply(live, trial, verdict, error)

    def _adopt(self, live: LiveExperiment, run: LiveRun) -> None:
        """Record the checkpoints that a run published without coming to report them."""
        for record in run.unrecorded:
            if self._transaction.adopt_checkpoint(run.trial_id, run.run_id, record):
                text = f"checkpoint {record.uuid} was published, but not reported: adopted"
                self._note(live, "checkpoint_adopted", text, run.trial_id, run.run_id)

    def _apply(self, live: LiveExperiment, trial: Trial, verdict: Verdict, error: str) -> None:
        changes: dict[str, Any] = {
            "restarts": verdict.restarts,
            "last_error": verdict.last_error,
            "not_before": self._now + verdict.waits_seconds if verdict.waits_seconds else 0.0,
        }
        if verdict.state.is_terminal:
            was = State(trial.state)
            is_wanted = was.is_stopping and verdict.state is was.outcome
            reason = trial.reason if is_wanted else verdict.reason
            digest = hashlib.sha256(error.encode()).hexdigest()[:16] if error else None
            early = None if verdict.early_exit is None else verdict.early_exit.value.lower()
            if verdict.state is State.ERROR:
                early = search.ERRORED
            events = self._close(live, trial, verdict.state, reason, early, digest, changes)
            self._follow(live, events)
            return
        self._set_trial(live, trial.id, reason=verdict.reason, **changes)
        if live.trials[trial.id].is_held:
            self._feed(live, search.TrialPaused(trial.request_id))

    # The search

    def _feed(self, live: LiveExperiment, event: search.Event) -> None:
        self._follow(live, [event])

    def _follow(self, live: LiveExperiment, events: Iterable[search.Event]) -> None:
        """Tell the search, carry out what it decides, and tell it what came of that."""
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
        self._end_if_over(live)

    def _leave_unheard(self, live: LiveExperiment, events: Iterable[search.Event]) -> None:
        """Keep events for a search that hears them beside the loop."""
        for event in events:
            number = self._transaction.keep_unheard(live.id, {"event": search.to_json(event)})
            live.unheard.append((number, event))

    def decided(self, live: LiveExperiment, steps: list[Step]) -> None:
        """A search heard, beside the loop, the first of the events that waited for it."""
        if live.searcher is None:
            return  # it failed meanwhile
        for i, step in enumerate(steps, start=1):
            number, _ = live.unheard.popleft()
            # What is now behind the search is behind its snapshot.
            is_due = i == len(steps) and (live.searcher.snapshot_is_due or live.searcher.is_over)
            self._leave_unheard(live, self._record_step(live, step, is_due, number))
        self._show_progress(live)
        self._end_if_over(live)

    def _record_step(
        self, live: LiveExperiment, step: Step, with_snapshot: bool, number: int | None = None
    ) -> list[search.Event]:
        """Keep what an event led to, carry it out, and return what the search must hear of it."""
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
            return []  # the trial was ended while the search thought about it
        if isinstance(action, search.Create):
            return self._create_trial(live, action)
        if isinstance(action, search.Shutdown):
            return self._shut_down(live, action)
        if isinstance(action, search.PauseExperiment):
            if live.state is State.ACTIVE:
                self.pause(live.id, action.reason)
                self._note(live, "paused", action.reason, level="warn")
        elif isinstance(action, (search.Stop, search.FailTrial)):
            trial = self._transaction.trial(live.requests[action.request_id])
            wanted = State.STOPPING_COMPLETED
            if isinstance(action, search.FailTrial):
                wanted = State.STOPPING_ERROR
            if not State(trial.state).is_terminal:
                state = more_severe(State(trial.state), wanted)
                return self._stop_trial(live, trial, state, action.reason)
        elif isinstance(action, search.Pause):
            trial_id = live.requests[action.request_id]
            self._set_trial(live, trial_id, is_held=True, reason=action.reason)
            if trial_id not in self._board.runs:
                return [search.TrialPaused(action.request_id)]
        elif isinstance(action, search.Resume):
            self._resume(live, action)
        elif isinstance(action, search.FreeCheckpoints):
            self.collect_garbage(live)
        return []

    def _create_trial(self, live: LiveExperiment, action: search.Create) -> list[search.Event]:
        state = State.PAUSED if live.state is State.PAUSED else State.ACTIVE
        trial = self._transaction.create_trial(
            NewTrial(
                live.id,
                action.request_id,
                action.trial_seed,
                action.hparams,
                state.value,
                live.record.environment.get("warm_start"),
            )
        )
        self._board.version += 1
        live.trials[trial.id] = trial
        live.requests[trial.request_id] = trial.id
        created = search.TrialCreated(trial.request_id)
        if live.state.is_stopping:  # since the search was asked
            return [created, *self._stop_trial(live, trial, live.state, live.record.reason)]
        return [created]

    def _resume(self, live: LiveExperiment, action: search.Resume) -> None:
        trial = self._transaction.trial(live.requests[action.request_id])
        changes: dict[str, Any] = {"is_held": False, "reason": action.reason}
        if State(trial.state).is_terminal:
            state = State.PAUSED if live.state is State.PAUSED else State.ACTIVE
            changes |= {"state": state.value, "restarts": 0, "last_error": "", "early_exit": None}
        self._set_trial(live, trial.id, **changes)

    def _shut_down(self, live: LiveExperiment, action: search.Shutdown) -> list[search.Event]:
        outcome = State.STOPPING_COMPLETED
        if action.failure:
            outcome = State.STOPPING_ERROR
        elif action.cancel:
            outcome = State.STOPPING_CANCELED
        if not live.state.is_stopping:
            self._set_experiment(live, outcome, action.reason)
        events = []
        for trial in list(live.trials.values()):  # a method that failed leaves some behind
            state = more_severe(State(trial.state), State.STOPPING_CANCELED)
            events += self._stop_trial(live, trial, state, "canceled: the search is over")
        return events

    def _end_if_over(self, live: LiveExperiment) -> None:
        if not live.state.is_stopping or live.trials or live.unheard:
            return
        outcome = live.state.outcome
        changes: dict[str, Any] = {}
        if outcome is State.COMPLETED:
            changes["progress"] = 1.0
        if calls := calls_at_end(live.record.config["integrations"], outcome):
            changes["environment"] = live.record.environment | {"calls": calls}
        self._set_experiment(live, outcome, live.record.reason, **changes)
        self.collect_garbage(live)
        self._note(live, "ended", f"{outcome.value}: {live.record.reason}")
        del self._board.experiments[live.id]

    def collect_garbage(self, live: LiveExperiment) -> None:
        """Let the checkpoints that nothing keeps be deleted."""
        self.collect_garbage_of([live.id])

    def collect_garbage_of(self, experiment_ids: Iterable[int]) -> None:
        """The same of experiments that may be over."""
        for experiment_id in experiment_ids:
            self._board.garbage.add(experiment_id)
            self._transaction.update_experiment(experiment_id, gc_is_due=True)

    def _show_progress(self, live: LiveExperiment) -> None:
        if live.searcher is None or live.searcher.is_over:
            return  # how it ended decides
        progress = live.searcher.progress()
        if abs(progress - live.record.progress) >= _SMALLEST_PROGRESS:
            self._set_experiment(live, live.state, live.record.reason, progress=progress)

    # Trials

    def _stop_all(self, experiment_id: int, state: State, reason: str) -> None:
        record = self._transaction.experiment(experiment_id)
        live = self._board.experiments.get(experiment_id)
        wanted = more_severe(State(record.state), state)
        if live is None or wanted is State(record.state):
            return  # it is over, or stops already
        self._set_experiment(live, wanted, reason)
        events: list[search.Event] = [search.Stopping()]
        for trial in list(live.trials.values()):
            events += self._stop_trial(live, trial, more_severe(State(trial.state), state), reason)
        self._follow(live, events)

    def _stop_trial(
        self, live: LiveExperiment, trial: Trial, state: State, reason: str
    ) -> list[search.Event]:
        """Let a trial stop; one without a run is over at once. Return what the search must hear."""
        if trial.id in self._board.runs:
            self._set_trial(live, trial.id, state=state.value, reason=reason)
            return []
        if not state.is_stopping:
            return []
        early = {
            State.STOPPING_CANCELED: search.USER_CANCELED,
            State.STOPPING_KILLED: search.USER_CANCELED,
            State.STOPPING_ERROR: search.ERRORED,
        }.get(state)
        return self._close(live, trial, state.outcome, reason, early, None, {})

    def _close(
        self,
        live: LiveExperiment,
        trial: Trial,
        state: State,
        reason: str,
        early: str | None,
        digest: str | None,
        changes: dict[str, Any],
    ) -> list[search.Event]:
        self._transaction.update_trial(
            trial.id, state=state.value, reason=reason, is_held=False, **changes
        )
        live.trials.pop(trial.id, None)
        self._board.version += 1
        events: list[search.Event] = []
        if early is not None:
            progressed = trial.total_batches > 0
            events.append(
                search.TrialExitedEarly(trial.request_id, early, digest, progressed=progressed)
            )
        return [*events, search.TrialExited(trial.request_id)]

    def _set_trials(self, live: LiveExperiment, old: State, new: State) -> None:
        for trial in list(live.trials.values()):
            if trial.state == old.value:
                self._set_trial(live, trial.id, state=new.value, not_before=0.0)

    def _set_trial(self, live: LiveExperiment, trial_id: int, **changes: Any) -> None:
        self._transaction.update_trial(trial_id, **changes)
        live.trials[trial_id] = self._transaction.trial(trial_id)
        self._board.version += 1

    def _set_experiment(
        self, live: LiveExperiment, state: State, reason: str, **changes: Any
    ) -> None:
        self._board.version += live.record.state != state.value
        self._transaction.update_experiment(live.id, state=state.value, reason=reason, **changes)
        live.record = self._transaction.experiment(live.id)

    def _live(self, experiment_id: int, verb: str) -> LiveExperiment:
        live = self._board.experiments.get(experiment_id)
        if live is None:
            record = self._transaction.experiment(experiment_id)
            raise Refused(f"{_named(record)} is {record.state}: it cannot be {verb}.")
        return live

    def _note(
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


def _exit_code(end: RunExit, run: LiveRun) -> int | None:
    if run.fault:
        return end.exit_code or 1  # whatever it says of itself
    return None if end.is_infrastructure_fault else end.exit_code


def is_invalid_hp(trial: Trial) -> bool:
    """Whether a trial said that its hyperparameters cannot work."""
    return trial.early_exit is not None and "INVALID_HP" in trial.early_exit


def _named(record: Experiment) -> str:
    return f"experiment {record.id}"


def _error_of(end: RunExit, run: LiveRun) -> str:
    """The last line of the traceback, or of what the process said last, alike for each run."""
    if end.exit_code == 0:
        return ""
    lines = end.traceback.text.strip().splitlines() if end.traceback else list(end.last_lines)
    error = lines[-1].strip()[:500] if lines else (end.message or "")
    return error.replace(f"{run.folder.workdir}/", "").replace(run.allocation_id, "this run")
