"""What a command, a report or the end of a run changes, within one transaction.

Every change is made in the store and in the live state together. If the transaction fails, the live
state is read from the store again.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

from determined import journal
from determined.errors import RefusedError, StoreError
from determined.platform.homes.home import Home
from determined.platform.rules.lifecycle import RunEnd, TrialFacts, Verdict, after_run
from determined.platform.rules.states import (
    State,
    activated,
    more_severe,
    paused,
)
from determined.platform.runs.folder import CANCELED, RunExit
from determined.platform.search import events as search
from determined.platform.supervisor.changes import Changes
from determined.platform.supervisor.forks import after_part
from determined.platform.supervisor.live_state import (
    LiveExperiment,
    LiveRun,
    LiveState,
    load_experiment,
)
from determined.platform.supervisor.searches.restoring import check_search
from determined.platform.supervisor.searches.steps import SearchSteps
from determined.store import AcceptedRecord, Experiment, NewExperiment, Transaction, Trial

_SHORT_WORDS = 200
_INHERIT = (
    "(A hyperparameter that cannot change in the middle of a training belongs into "
    "`searcher.inherit`.)"
)


class Decisions:
    """The decisions of one tick: `changes`, and `search_steps` where a search decides."""

    def __init__(self, live_state: LiveState, transaction: Transaction, now: float) -> None:
        """`now` is the time of day, for waits that outlive a restart."""
        self.transaction = transaction
        self.changes = Changes(live_state, transaction)
        self.search_steps = SearchSteps(live_state, transaction, self.changes)
        self._live_state = live_state
        self._now = now

    @property
    def home(self) -> Home:
        return self._live_state.home

    @property
    def is_copy(self) -> bool:
        """Whether the home is a copy of another."""
        return self._live_state.is_copy

    def active(self) -> list[LiveExperiment]:
        """The experiments that are neither paused nor about to end."""
        return [
            live for live in self._live_state.experiments.values() if live.state is State.ACTIVE
        ]

    def hand_over(self) -> None:
        """Let another supervisor go on after this tick."""
        self._live_state.must_exit = True

    # Commands on experiments

    def create(self, new: NewExperiment) -> Experiment:
        """Add an experiment and ask its search for the first trials."""
        check_search(new.config)
        record = self.transaction.create_experiment(new)
        live = load_experiment(self._live_state.home, self.transaction, record)
        if live.searcher is None:
            raise StoreError(live.failure)
        self._live_state.experiments[record.id] = live
        self.search_steps.feed(live, search.InitialTrials())
        return live.record

    def continue_ended(self, experiment_id: int, event: search.LimitsRaised) -> None:
        """Continue a finished experiment; its search decides which trials run."""
        record = self.transaction.experiment(experiment_id)
        live = load_experiment(self._live_state.home, self.transaction, record)
        self._live_state.experiments[record.id] = live
        self.changes.note(live, "continued", "continued by the user")
        self.search_steps.feed(live, event)

    def continue_paused(self, experiment_id: int, event: search.LimitsRaised) -> None:
        """Continue an experiment that has paused itself."""
        self.activate(experiment_id)
        live = self._live(experiment_id, "continued")
        self.changes.note(live, "continued", "continued by the user")
        self.search_steps.feed(live, event)

    def pause(self, experiment_id: int, reason: str = "") -> None:
        live = self._live(experiment_id, "paused")
        paused(live.state, _named(live.record))  # raises if it cannot be paused
        self.changes.hold(live, reason)

    def activate(self, experiment_id: int) -> None:
        live = self._live(experiment_id, "activated")
        self.changes.set_experiment(live, activated(live.state, _named(live.record)), "")
        self.changes.set_trials(live, State.PAUSED, State.ACTIVE)

    def cancel(self, experiment_id: int) -> None:
        self._stop_all(experiment_id, State.STOPPING_CANCELED, "canceled by the user")

    def kill(self, experiment_id: int) -> None:
        self._stop_all(experiment_id, State.STOPPING_KILLED, "killed by the user")

    def kill_trial(self, trial_id: int) -> None:
        """End one trial; its search is told that the user did it."""
        trial = self.transaction.trial(trial_id)
        live = self._live_state.experiments.get(trial.experiment_id)
        if live is not None and trial.id in live.trials:
            state = more_severe(State(trial.state), State.STOPPING_KILLED)
            self.search_steps.follow(
                live, self.changes.stop_trial(live, trial, state, "killed by the user")
            )

    def end_for_time(self, live: LiveExperiment, trial_id: int | None, limit: str) -> None:
        """Stop a trial, or a whole experiment, whose time is up; trials save a checkpoint.

        A trial that has just ended, or that a command stops or pauses, is left alone.
        """
        reason = f"reached {limit}"
        if trial_id is None:
            self._stop_all(live.id, State.STOPPING_COMPLETED, reason)
            return
        trial = live.trials.get(trial_id)
        if trial is not None and State(trial.state) is State.ACTIVE:
            self.search_steps.follow(
                live, self.changes.stop_trial(live, trial, State.STOPPING_COMPLETED, reason)
            )

    def fail(self, live: LiveExperiment, reason: str) -> None:
        """End an experiment whose search cannot continue; the search gets no more events."""
        live.searcher = None
        live.pending_events.clear()  # no search will process them
        if live.state is not State.STOPPING_ERROR:
            self.changes.set_experiment(live, State.STOPPING_ERROR, reason)
            self.changes.note(live, "failed", reason, level="error")
        for trial in list(live.trials.values()):
            state = more_severe(State(trial.state), State.STOPPING_ERROR)
            self.changes.stop_trial(live, trial, state, reason)
        self.search_steps.end_if_over(live)

    def fail_unrestorable(self) -> None:
        """End the experiments whose search could not be restored."""
        for live in list(self._live_state.experiments.values()):
            if live.searcher is None:
                self.fail(live, live.failure)

    def _stop_all(self, experiment_id: int, state: State, reason: str) -> None:
        record = self.transaction.experiment(experiment_id)
        live = self._live_state.experiments.get(experiment_id)
        wanted = more_severe(State(record.state), state)
        if live is None or wanted is State(record.state):
            return  # it has ended, or is stopping already
        self.changes.set_experiment(live, wanted, reason)
        events: list[search.Event] = [search.Stopping()]
        for trial in list(live.trials.values()):
            events += self.changes.stop_trial(
                live, trial, more_severe(State(trial.state), state), reason
            )
        self.search_steps.follow(live, events)

    def _live(self, experiment_id: int, verb: str) -> LiveExperiment:
        live = self._live_state.experiments.get(experiment_id)
        if live is None:
            record = self.transaction.experiment(experiment_id)
            raise RefusedError(f"{_named(record)} is {record.state}: it cannot be {verb}.")
        return live

    # What runs report

    def reported(self, live: LiveExperiment, trial_id: int, accepted: AcceptedRecord) -> None:
        """A run of a trial reported something that may call for a decision."""
        record = accepted.record
        if isinstance(record, journal.Metrics):
            if record.group == "validation" and not accepted.is_repeat:
                self._validated(live, trial_id, record.metrics, record.steps_completed)
        elif isinstance(record, journal.Checkpoint):
            if live.record.configuration.checkpoint_storage.gc == "continuous":
                self.changes.collect_garbage(live)
        elif isinstance(record, journal.EarlyExit):  # it gets a moment to exit by itself
            live.trials[trial_id] = self.transaction.trial(trial_id)
            self._live_state.version += 1

    def _validated(
        self, live: LiveExperiment, trial_id: int, metrics: dict[str, Any], steps: int
    ) -> None:
        metric = live.record.searcher_metric
        if metric is not None and metric not in metrics and not live.has_noted_missing_metric:
            live.has_noted_missing_metric = True
            reported = ", ".join(f"`{name}`" for name in sorted(metrics)) or "none"
            text = f"validations have no `{metric}`, the searcher.metric; reported are {reported}"
            self.changes.note(live, "metric", text, trial_id=trial_id, level="warn")
        request_id = live.trials[trial_id].request_id
        self.search_steps.feed(live, search.ValidationCompleted(request_id, metrics, steps))

    def progressed(self, live: LiveExperiment, trial_id: int) -> None:
        """A trial reported its progress: tell the search if the difference is large enough."""
        trial = self.transaction.trial(trial_id)
        live.trials[trial_id] = trial
        if live.is_news(trial_id, trial.progress):
            self.search_steps.feed(live, search.Progress(trial.request_id, trial.progress))

    def refresh(self, experiment_id: int) -> None:
        """Read an experiment again after its fields were changed."""
        live = self._live_state.experiments.get(experiment_id)
        if live is not None:
            live.record = self.transaction.experiment(experiment_id)
            self._live_state.version += 1

    # Runs

    def _has_come_further(self, run: LiveRun) -> bool:
        """Whether a run saved a later state than it started from; the same one is no progress."""
        latest = self.transaction.latest_checkpoint(run.trial_id)
        if latest is None or latest.run_id != run.run_id:
            return False
        return run.from_checkpoint is None or latest.steps_completed > run.steps_completed

    def run_ended(self, run: LiveRun, end: RunExit) -> None:
        """A run's journals were read to the end, and its processes are gone."""
        live = self._live_state.experiments[run.experiment_id]
        self._adopt(live, run)
        trial = self.transaction.trial(run.trial_id)
        recorded = self.transaction.run(run.trial_id, run.run_id)
        brought = self._after_part(run, end, is_acknowledged=recorded.acknowledged)
        error = run.fault or _error_of(end, run)
        facts = TrialFacts(
            State(trial.state),
            trial.restarts,
            live.record.configuration.max_restarts,
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
                canceled_elsewhere=(end.message or "") if end.reason == CANCELED else "",
                loss=_loss(end),
                cancels_retries=any(match.action == "cancel_retries" for match in end.matches),
                error=error,
            ),
        )
        if brought and not verdict.state.is_terminal:
            verdict = dataclasses.replace(verdict, reason=brought)
        if verdict.state is State.ERROR and _is_refused_fork(live, end):
            verdict = dataclasses.replace(verdict, reason=f"{verdict.reason} {_INHERIT}")
        self.transaction.end_run(run.trial_id, run.run_id, end.exit_code, verdict.reason)
        del self._live_state.runs[run.trial_id]
        self._live_state.version += 1
        is_failure = bool(end.exit_code and not end.stopped_by)
        level = "warn" if is_failure or run.fault else "info"
        self.changes.note(live, "run_ended", verdict.reason, trial.id, run.run_id, level)
        for match in end.matches:
            text = f"log policy {match.name!r} matched line {match.line + 1}: {match.text}"
            self.changes.note(live, "log_policy", text, trial.id, run.run_id, "warn")
        self._apply(live, trial, verdict, error)

    def _after_part(self, run: LiveRun, end: RunExit, *, is_acknowledged: bool) -> str:
        """Note what a part of a fork has brought; one that ended too early has failed."""
        part = None if run.forked is None else run.forked.part
        if part is None:
            return ""
        if part.ends_at is not None and end.exit_code == 0 and not is_acknowledged:
            run.fault = (
                f"its training ended before batch {part.ends_at}, which trial {part.trial_id} had "
                "reached"
            )
        is_done = end.exit_code == 0 and is_acknowledged
        return after_part(self.transaction, run.trial_id, part, is_done=is_done)

    def _adopt(self, live: LiveExperiment, run: LiveRun) -> None:
        """Record the checkpoints that a run published but could not report."""
        for record in run.unrecorded:
            if self.transaction.adopt_checkpoint(run.trial_id, run.run_id, record):
                text = f"checkpoint {record.uuid} was saved but not reported: added to the records"
                self.changes.note(live, "checkpoint_adopted", text, run.trial_id, run.run_id)

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
            events = self.changes.close(live, trial, verdict.state, reason, early, digest, changes)
            self.search_steps.follow(live, events)
            return
        self.changes.set_trial(live, trial.id, reason=verdict.reason, **changes)
        if live.trials[trial.id].is_held:
            self.search_steps.feed(live, search.TrialPaused(trial.request_id))


def _is_refused_fork(live: LiveExperiment, end: RunExit) -> bool:
    """Whether a fork that a search asked for cannot change what it was to change."""
    is_population = live.record.configuration.searcher.name == "pbt"
    return is_population and end.traceback is not None and "ForkError" in end.traceback.text


def _exit_code(end: RunExit, run: LiveRun) -> int | None:
    if run.fault:
        return end.exit_code or 1  # an exit code of 0 does not make it a success
    return None if end.is_infrastructure_fault else end.exit_code


def _loss(end: RunExit) -> str:
    """Why a run was lost, if that is known in a few words."""
    words = (end.message or "").strip().rstrip(".") if end.is_infrastructure_fault else ""
    return words if len(words) <= _SHORT_WORDS and "\n" not in words else ""


def is_invalid_hp(trial: Trial) -> bool:
    """Whether a trial reported its hyperparameters as invalid."""
    return trial.early_exit is not None and "INVALID_HP" in trial.early_exit


def _named(record: Experiment) -> str:
    return f"experiment {record.id}"


def _error_of(end: RunExit, run: LiveRun) -> str:
    """The last line of the traceback, or else of the output, normalized to be equal across runs."""
    if end.exit_code == 0:
        return ""
    lines = end.traceback.text.strip().splitlines() if end.traceback else list(end.last_lines)
    error = lines[-1].strip()[:500] if lines else (end.message or "")
    return error.replace(f"{run.folder.workdir}/", "").replace(run.allocation_id, "this run")
