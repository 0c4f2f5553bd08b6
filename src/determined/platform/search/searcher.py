"""One experiment's search: an event in, actions out, and a record from which it can be replayed.

The state is owned by the `Searcher` and changes only in `handle` and `replay`. After a crash,
`Searcher.restore` takes any snapshot and the records after it, and restores the same state, byte
for byte; without a snapshot it replays all records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from determined.platform.search import events as e
from determined.platform.search.failures import FailureStreak
from determined.platform.search.methods.custom import Custom, Oracle
from determined.platform.search.methods.exhaustive import Exhaustive
from determined.platform.search.methods.halving import Halving
from determined.platform.search.methods.population import Population
from determined.platform.search.metric_values import (
    NotFiniteError,
    UnreadableMetricError,
    read_time,
    read_value,
)
from determined.platform.search.sampling.model import Model
from determined.platform.search.sampling.proposals import Proposals
from determined.platform.search.sampling.randomness import Stream
from determined.platform.search.sampling.results import WORST
from determined.platform.search.search_state import (
    CANCELED,
    ENDING,
    ERRORED,
    FAILED,
    FAILING,
    INVALID,
    PAUSING,
    RUNNING,
    SearchState,
    Trial,
)
from determined.platform.search.settings import Settings
from determined.platform.search.space import Space
from determined.platform.search.stop_rules import StopRules

_VERSION = 1
_STATUS = {e.ERRORED: ERRORED, e.USER_CANCELED: CANCELED, e.INVALID_HP: INVALID}


class Method(Protocol):
    """How a search decides; it acts through the state."""

    def initial(self, search: SearchState) -> None: ...
    def validated(self, search: SearchState, trial: Trial, value: float, time: int) -> None: ...
    def paused(self, search: SearchState, trial: Trial) -> None: ...
    def exited_early(self, search: SearchState, trial: Trial, status: str) -> None: ...
    def exited(self, search: SearchState, trial: Trial) -> None: ...
    def raised(self, search: SearchState, limits: e.LimitsRaised) -> None: ...
    def progress(self, search: SearchState) -> float: ...
    def load_results(self, search: SearchState) -> None: ...
    def to_json(self) -> dict[str, Any]: ...
    def load(self, data: dict[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class Step:
    """The outcome of one event; `record` is plain JSON, to be committed with the actions."""

    actions: list[e.Action]
    record: dict[str, Any]


class Searcher:
    """The state of one search.

    Args:
        searcher: the `searcher` section of the configuration.
        hyperparameters: the `hyperparameters` section.
        seed: the experiment's seed.
        oracle: where a `custom` method runs; not needed to replay.
        model: answers for a `sampler`; by default it runs in this process.
        repeat: how many seeds each configuration of `single` and `grid` gets.
    """

    def __init__(
        self,
        searcher: dict[str, Any],
        hyperparameters: dict[str, Any],
        seed: int,
        oracle: Oracle | None = None,
        model: Model | None = None,
        repeat: int | None = None,
    ) -> None:
        self.settings = Settings.from_dict(searcher, repeat)
        space = Space(hyperparameters)
        proposals = Proposals(self.settings.sampler, space, seed, self.settings.time_metric, model)
        initial = [
            space.fixed(chosen, f"searcher.initial[{i}]")
            for i, chosen in enumerate(self.settings.initial)
        ]
        if len(initial) > self.settings.most_initial:
            limit = "population" if self.settings.name == "pbt" else "max_trials"
            raise ValueError(
                f"searcher.initial: expected at most {limit} ({self.settings.most_initial}) "
                f"configurations, got {len(initial)}."
            )
        self.state = SearchState(space, Stream(seed), proposals, initial)
        self.is_over = False
        self.num_events = 0
        self._streak = FailureStreak()
        self._rules = StopRules(self.settings)
        self._events_at_snapshot = 0
        self._method: Method
        if self.settings.is_halving:
            self._method = Halving(self.settings)
        elif self.settings.name == "pbt":
            self._method = Population(self.settings, space)
        elif self.settings.name == "custom":
            self._method = Custom(oracle)
        else:
            self._method = Exhaustive(self.settings, self.state, seed)

    def handle(self, event: e.Event) -> Step:
        """Process an event; models and custom methods are asked if needed.

        An exception means that the platform sent an impossible event; restore the search then.
        """
        if isinstance(event, e.InitialTrials):
            self.state.proposals.check_installed()
        return self._take(event, None)

    def replay(self, record: dict[str, Any]) -> Step:
        """Process a recorded event with its recorded answers; nothing is asked again."""
        return self._take(e.event_from_json(record["event"]), record)

    def _take(self, event: e.Event, record: dict[str, Any] | None) -> Step:
        state = self.state
        state.actions = []
        state.proposals.begin(None if record is None else record.get("proposed", []))
        self.num_events += 1
        made: dict[str, Any] = {"event": e.to_json(event)}
        if not self.is_over or isinstance(event, e.LimitsRaised):
            is_relevant = self._dispatch(event)
            self._rules.acted(self.state, self.state.actions)
            if is_relevant and isinstance(self._method, Custom):
                recorded = None if record is None else record["orders"]
                made["orders"] = self._consult(self._method, event, recorded)
            self._conclude(event)
        if state.proposals.made:
            made["proposed"] = state.proposals.made
        return Step(state.actions, made)

    def _dispatch(self, event: e.Event) -> bool:
        """Pass an event to the method; return False if it comes too late to matter."""
        if isinstance(event, e.TrialEvent):
            return self._of_trial(event, self._trial(event.request_id))
        if isinstance(event, e.InitialTrials):
            self._method.initial(self.state)
        elif isinstance(event, e.LimitsRaised):
            self.is_over = self.state.is_closing = False
            self._rules.restart()
            self._method.raised(self.state, event)
        elif isinstance(event, e.Stopping):
            self.state.is_closing = True
        return True

    def _obey_rules(self) -> None:
        """End all trials if a rule of `stop_when` says so."""
        if self._rules.reason and not self.state.is_closing:
            self.state.close(f"the search ends: {self._rules.reason}")

    def _of_trial(self, event: e.TrialEvent, trial: Trial) -> bool:
        if isinstance(event, e.ValidationCompleted):
            return self._validated(trial, event)
        if isinstance(event, e.TrialExited):
            return self._exited(trial)
        if isinstance(event, e.TrialExitedEarly):
            return self._exited_early(trial, event)
        if isinstance(event, e.Progress):
            trial.progress = min(max(float(event.progress), 0.0), 1.0)
        elif isinstance(event, e.TrialPaused):
            if trial.status != PAUSING:
                return False
            self._method.paused(self.state, trial)
        return True

    def _trial(self, request_id: str) -> Trial:
        try:
            return self.state.by_request[request_id]
        except KeyError:
            raise ValueError(
                f"Request id {request_id} is not one of the {len(self.state.trials)} trials of "
                "this search: its state and its trials do not match."
            ) from None

    def _validated(self, trial: Trial, event: e.ValidationCompleted) -> bool:
        if trial.status != RUNNING:  # decided already; what it still reports changes nothing
            return False
        self._streak.reset()
        needs_results, time = self.settings.needs_results, 0
        try:
            value = self._value(event)
            if value < WORST and (trial.best is None or value < trial.best):
                trial.best = value
                self._rules.improved(trial, value)
            if needs_results or self._rules.counts_units:
                time = read_time(self.settings, event.metrics, event.steps)
        except UnreadableMetricError as error:
            if needs_results:  # other methods do not use it
                self.state.fail(trial, str(error))
            return True
        self.state.steps = event.steps
        self._rules.trained(trial, time)
        self._obey_rules()
        if trial.status == RUNNING:
            self._method.validated(self.state, trial, value, time)
        return True

    def _value(self, event: e.ValidationCompleted) -> float:
        try:
            return read_value(self.settings, event.metrics, event.steps)
        except NotFiniteError:
            if self.settings.name == "pbt":  # a member that diverges is replaced, not failed
                return WORST
            raise

    def _exited_early(self, trial: Trial, event: e.TrialExitedEarly) -> bool:
        if trial.exited or trial.status in (*FAILED, INVALID):
            return False
        if event.reason not in _STATUS:
            raise ValueError(f"reason: expected one of {', '.join(_STATUS)}, got {event.reason!r}.")
        self._regain(trial)
        self._method.exited_early(self.state, trial, _STATUS[event.reason])
        if event.reason == e.ERRORED and (
            sentence := self._streak.failed(event.digest, event.progressed)
        ):
            self.state.actions.append(e.PauseExperiment(sentence))
        return True

    def _exited(self, trial: Trial) -> bool:
        if trial.exited:
            return False
        self._regain(trial)
        if trial.status == FAILING:
            self._method.exited_early(self.state, trial, ERRORED)
        if trial.status not in (*FAILED, INVALID):
            self._streak.reset()
        self.state.exit(trial)
        self._rules.exited(trial)
        self._obey_rules()
        self._method.exited(self.state, trial)
        return True

    @staticmethod
    def _regain(trial: Trial) -> None:
        """Count a trial that ended with the search as running until now, as its method does."""
        if trial.status == ENDING:
            trial.status = RUNNING

    def _consult(
        self, method: Custom, event: e.Event, recorded: list[dict[str, Any]] | None
    ) -> list[dict[str, Any]]:
        """Let the user's method decide; if it fails, the search ends."""
        message = e.to_json(event)
        if isinstance(event, e.TrialEvent):
            message["trial"] = self._trial(message.pop("request_id")).number
        orders, failure = method.consult(self.state, message, recorded)
        if failure:
            self._end(e.Shutdown(failure=True, reason=f"The search method failed: {failure}"))
        return orders

    def _conclude(self, event: e.Event) -> None:
        """End the search when every requested trial has exited."""
        state, requested = self.state, len(self.state.trials)
        ends = (e.InitialTrials, e.TrialExited, e.LimitsRaised, e.Stopping)
        if self.is_over or state.num_exited < requested or not isinstance(event, ends):
            return
        if requested == 0:
            self._end(e.Shutdown(failure=True, reason="The search created no trial."))
            return
        failure, cancel = state.num_errored == requested, state.num_canceled == requested
        ended = "failed" if failure else "were canceled" if cancel else "ended"
        reason = f"all {requested} trials {ended}"
        if requested == 1:
            reason = f"its trial {'was canceled' if cancel else ended}"
        if self._rules.reason:
            reason = f"{self._rules.reason}; {reason}"
        self._end(e.Shutdown(cancel=cancel, failure=failure, reason=reason))

    def _end(self, shutdown: e.Shutdown) -> None:
        self.state.actions.append(shutdown)
        self.is_over = True

    def progress(self) -> float:
        """Return the progress of the search, from 0 to 1."""
        return 1.0 if self.is_over else self._method.progress(self.state)

    @property
    def snapshot_is_due(self) -> bool:
        """Whether enough has happened since the last snapshot to make a new one worthwhile."""
        return self.num_events - self._events_at_snapshot >= max(256, 2 * len(self.state.trials))

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state as plain JSON."""
        self._events_at_snapshot = self.num_events
        rules = {"rules": self._rules.to_json()} if self._rules.are_given else {}
        return {
            **rules,
            "version": _VERSION,
            "num_events": self.num_events,
            "is_over": self.is_over,
            "streak": self._streak.to_json(),
            "desk": self.state.to_json(),  # the key is part of the saved format
            "method": self._method.to_json(),
        }

    @classmethod
    def restore(
        cls,
        searcher: dict[str, Any],
        hyperparameters: dict[str, Any],
        seed: int,
        snapshot: dict[str, Any] | None = None,
        records: Iterable[dict[str, Any]] = (),
        oracle: Oracle | None = None,
        model: Model | None = None,
        repeat: int | None = None,
    ) -> Searcher:
        """Return the search as it was after `records`: those since `snapshot`, or all of them.

        With an `oracle` (a new process of a custom method), all records are needed to replay them.
        """
        if snapshot is not None and oracle is not None:
            raise ValueError(
                "A custom method is restored from all of its records, not from a snapshot."
            )
        restored = cls(searcher, hyperparameters, seed, oracle, model, repeat)
        if snapshot is not None:
            restored._load(snapshot)
        for record in records:
            restored.replay(record)
        return restored

    def _load(self, snapshot: dict[str, Any]) -> None:
        if snapshot["version"] != _VERSION:
            raise ValueError(
                f"The search was saved in format {snapshot['version']}; this release reads "
                f"{_VERSION}. Continue it with the release that wrote it."
            )
        self.num_events = self._events_at_snapshot = snapshot["num_events"]
        self.is_over = snapshot["is_over"]
        self._streak.load(snapshot["streak"])
        if self._rules.are_given:
            self._rules.load(snapshot["rules"])
        self.state.load(snapshot["desk"])
        self._method.load(snapshot["method"])
        self._method.load_results(self.state)
