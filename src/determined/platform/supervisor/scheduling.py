"""Which trials run next: the live state as input of the scheduler, its decision as new runs."""

from __future__ import annotations

from collections.abc import Callable

from determined.platform.homes.home import Home
from determined.platform.machines.slots import Machine
from determined.platform.rules.lifecycle import may_start
from determined.platform.rules.scheduler import (
    DEFAULT_PRIORITY,
    Request,
    Running,
    SlotLocation,
    decide,
)
from determined.platform.rules.states import State
from determined.platform.runs.folder import RunFolder
from determined.platform.runs.placement import place
from determined.platform.supervisor.forks import forked_run, start_of
from determined.platform.supervisor.live_state import LiveExperiment, LiveRun, LiveState
from determined.store import Transaction, Trial

_EXCLUDE = "exclude_node"


class Scheduling:
    """Remembers between ticks how often waiting trials were overtaken."""

    def __init__(self, live_state: LiveState, machine: Callable[[], Machine]) -> None:
        self._live_state = live_state
        self._machine = machine
        self._last_machine: Machine | None = None
        self._overtaken: dict[int, int] = {}
        self._version: int | None = None
        self.next_start: float | None = None
        """When the first trial that waits after a failure may start again."""

    def is_due(self, now: float) -> bool:
        """Whether the decision may differ from the last one."""
        is_time = self.next_start is not None and may_start(self.next_start, now)
        is_other = self._machine() is not self._last_machine
        return is_time or is_other or self._version != self._live_state.version

    def run(self, transaction: Transaction, now: float) -> None:
        """Record new runs, and which running ones are preempted."""
        live_state, machine = self._live_state, self._machine()
        everyone = list(live_state.waiting())
        waiting = {
            trial.id: (live, trial) for live, trial in everyone if may_start(trial.not_before, now)
        }
        later = [trial.not_before for _, trial in everyone if trial.id not in waiting]
        requests = [
            self._request(
                live, trial, _slots_to_avoid(transaction, live_state.home, live, trial, machine)
            )
            for live, trial in waiting.values()
        ]
        locations = {
            slot.id: SlotLocation(slot.node, slot.pools) for slot in machine.slots if slot.node
        }
        slot_ids = [slot.id for slot in machine.slots]
        decision = decide(requests, self._running(), slot_ids, locations)
        self._overtaken = {**self._overtaken, **decision.overtaken}
        for trial_id in decision.preemptions:
            _preempt(
                transaction,
                live_state.runs[trial_id],
                "preempted by an experiment of higher priority",
            )
        for run in live_state.runs.values():
            if not run.preempted and not machine.leaving.isdisjoint(run.slots):
                _preempt(transaction, run, "its node is being drained")
        for start in decision.starts:
            self._overtaken.pop(start.request.key, None)
            self._start(transaction, *waiting[start.request.key], start.slot_ids)
        self._version, self.next_start = live_state.version, min(later, default=None)
        self._last_machine = machine

    def forget(self) -> None:
        """Decide again: the last decision was not committed."""
        self._version = None

    def _start(
        self,
        transaction: Transaction,
        live: LiveExperiment,
        trial: Trial,
        slot_ids: tuple[int, ...],
    ) -> None:
        steps, checkpoint = start_of(transaction, trial)
        run_id = trial.run_id + 1
        recorded = transaction.create_run(
            trial.id,
            folder=str(self._live_state.home.run(live.id, trial.id, run_id)),
            slots=list(slot_ids),
            host=", ".join(part.host for part in place(slot_ids, self._machine(), trial.id)),
            steps_completed=steps,
            from_checkpoint=checkpoint,
        )
        live.trials[trial.id] = transaction.trial(trial.id)
        if live.record.started is None:
            live.record = transaction.experiment(live.id)
        self._live_state.runs[trial.id] = LiveRun.of(
            recorded,
            live.id,
            transaction.seconds_run(trial.id),
            forked_run(transaction, recorded),
        )

    def _running(self) -> list[Running]:
        found = []
        for run in self._live_state.runs.values():
            live = self._live_state.experiments[run.experiment_id]
            trial = live.trials[run.trial_id]
            is_ending = bool(run.preempted) or trial.is_held or trial.state != State.ACTIVE.value
            found.append(Running(self._request(live, trial), run.slots, is_ending))
        return found

    def _request(
        self, live: LiveExperiment, trial: Trial, avoid: frozenset[int] = frozenset()
    ) -> Request:
        resources = live.record.configuration.resources
        priority = live.record.priority
        if self._machine().is_queued:
            return _job_request(live, trial, self._overtaken.get(trial.id, 0))
        return Request(
            key=trial.id,
            experiment=live.id,
            submitted=trial.id,
            slots=resources.slots_per_trial,
            priority=DEFAULT_PRIORITY if priority is None else priority,
            max_slots=live.record.max_slots,
            trials_per_slot=resources.trials_per_slot,
            overtaken=self._overtaken.get(trial.id, 0),
            avoid=avoid,
            pool=resources.resource_pool,
        )


def _preempt(transaction: Transaction, run: LiveRun, why: str) -> None:
    run.preempted = why
    transaction.preempt_run(run.trial_id, run.run_id, why)


def _job_request(live: LiveExperiment, trial: Trial, overtaken: int) -> Request:
    """A trial as one job: a batch system finds the slots, of which `max_slots` is a number."""
    most, each = live.record.max_slots, live.record.configuration.resources.slots_per_trial
    priority = live.record.priority
    return Request(
        key=trial.id,
        experiment=live.id,
        submitted=trial.id,
        priority=DEFAULT_PRIORITY if priority is None else priority,
        max_slots=None if most is None else most // max(1, each),
        overtaken=overtaken,
    )


def _slots_to_avoid(
    transaction: Transaction, home: Home, live: LiveExperiment, trial: Trial, machine: Machine
) -> frozenset[int]:
    """The slots of the previous run, if a log policy excluded them.

    On a cluster: all slots of its nodes.
    """
    policies = live.record.configuration.log_policies
    if not trial.restarts or not any(policy.action == _EXCLUDE for policy in policies):
        return frozenset()
    matches = RunFolder(home.run(live.id, trial.id, trial.run_id)).matches
    if not any(match.action == _EXCLUDE for match in matches):
        return frozenset()
    own = frozenset(transaction.run(trial.id, trial.run_id).slots)
    nodes = {slot.node for slot in machine.slots if slot.node and slot.id in own}
    return own | {slot.id for slot in machine.slots if slot.node in nodes}
