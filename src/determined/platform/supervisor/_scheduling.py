"""Who runs next: the board as the scheduler sees it, and its decision as new runs."""

from __future__ import annotations

from determined.platform.scheduler import DEFAULT_PRIORITY, Request, Running, decide
from determined.platform.states import State
from determined.platform.supervisor._board import Board, LiveExperiment, LiveRun
from determined.store import Transaction, Trial


class Scheduling:
    """Keeps, between ticks, how often waiting trials were overtaken."""

    def __init__(self, board: Board, slot_ids: tuple[int, ...]) -> None:
        self._board = board
        self._slot_ids = slot_ids
        self._overtaken: dict[int, int] = {}

    def is_due(self, now: float) -> bool:
        """Whether a trial could start now; next to nothing when none waits."""
        return any(trial.not_before <= now for _, trial in self._board.waiting())

    def next_start(self, now: float) -> float | None:
        """When the first trial that waits after a failure may start again."""
        later = [t.not_before for _, t in self._board.waiting() if t.not_before > now]
        return min(later, default=None)

    def run(self, transaction: Transaction, now: float) -> None:
        """Record new runs, and which running ones have to make room."""
        board = self._board
        waiting = {
            trial.id: (live, trial) for live, trial in board.waiting() if trial.not_before <= now
        }
        requests = [self._request(live, trial) for live, trial in waiting.values()]
        decision = decide(requests, self._running(), self._slot_ids)
        self._overtaken = {**self._overtaken, **decision.overtaken}
        for trial_id in decision.preemptions:
            run = board.runs[trial_id]
            run.preempted = "made room for an experiment of higher priority"
            transaction.preempt_run(trial_id, run.run_id, run.preempted)
        for start in decision.starts:
            self._overtaken.pop(start.request.key, None)
            self._start(transaction, *waiting[start.request.key], start.slot_ids)

    def _start(
        self,
        transaction: Transaction,
        live: LiveExperiment,
        trial: Trial,
        slot_ids: tuple[int, ...],
    ) -> None:
        checkpoint = transaction.latest_checkpoint(trial.id)
        run_id = trial.run_id + 1
        recorded = transaction.create_run(
            trial.id,
            folder=str(self._board.home.run(live.id, trial.id, run_id)),
            slots=list(slot_ids),
            steps_completed=0 if checkpoint is None else checkpoint.steps_completed,
            from_checkpoint=trial.warm_start_checkpoint if checkpoint is None else checkpoint.uuid,
        )
        live.trials[trial.id] = transaction.trial(trial.id)
        self._board.runs[trial.id] = LiveRun.of(
            recorded, live.id, transaction.seconds_run(trial.id)
        )

    def _running(self) -> list[Running]:
        found = []
        for run in self._board.runs.values():
            live = self._board.experiments[run.experiment_id]
            trial = live.trials[run.trial_id]
            is_ending = bool(run.preempted) or trial.is_held or trial.state != State.ACTIVE.value
            found.append(Running(self._request(live, trial), run.slots, is_ending))
        return found

    def _request(self, live: LiveExperiment, trial: Trial) -> Request:
        resources = live.record.config["resources"]
        priority = live.record.priority
        return Request(
            key=trial.id,
            experiment=live.id,
            submitted=trial.id,
            slots=resources["slots_per_trial"],
            priority=DEFAULT_PRIORITY if priority is None else priority,
            max_slots=live.record.max_slots,
            trials_per_slot=resources["trials_per_slot"],
            overtaken=self._overtaken.get(trial.id, 0),
        )
