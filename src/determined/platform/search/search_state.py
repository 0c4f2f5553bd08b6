"""The state of a search: its trials, and how methods create, stop, pause and resume them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from determined.platform.search.events import (
    Action,
    Continue,
    Create,
    FailTrial,
    Fork,
    FreeCheckpoints,
    LimitsRaised,
    Pause,
    Resume,
    Stop,
)
from determined.platform.search.sampling.proposals import Proposals
from determined.platform.search.sampling.randomness import Stream
from determined.platform.search.space import Point, Space

RUNNING = "running"
FAILING = "failing"  # ordered to fail, still running
ENDING = "ending"  # ordered to end with the whole search, still running
PAUSING = "pausing"
PAUSED = "paused"
STOPPED = "stopped"  # by the searcher
DONE = "done"  # by itself
ERRORED = "errored"
CANCELED = "canceled"
INVALID = "invalid"

OCCUPIED = (RUNNING, FAILING, ENDING)  # these count against `max_concurrent_trials`
FAILED = (ERRORED, CANCELED)


class Trial:
    """One trial of a search; `values[r]` is its result at rung r, smaller is better."""

    __slots__ = (
        "best",
        "bracket",
        "exited",
        "number",
        "point",
        "progress",
        "request_id",
        "rung",
        "status",
        "values",
    )

    def __init__(self, number: int, request_id: str, bracket: int = 0) -> None:
        self.number = number
        self.request_id = request_id
        self.bracket = bracket
        self.rung = 0
        self.status = RUNNING
        self.exited = False
        self.values: list[float] = []
        self.best: float | None = None
        self.progress = 0.0
        self.point: Point | None = None  # kept where a model needs it

    def to_json(self) -> list[Any]:
        return [
            self.request_id,
            self.bracket,
            self.rung,
            self.status,
            self.exited,
            list(self.values),
            self.best,
            self.progress,
            self.point,
        ]

    @classmethod
    def from_json(cls, number: int, row: list[Any]) -> Trial:
        trial = cls(number, row[0], row[1])
        _, _, trial.rung, trial.status, trial.exited, values, trial.best, trial.progress, point = (
            row
        )
        trial.values, trial.point = list(values), point
        return trial


def unfinished_to_rerun(limits: LimitsRaised) -> tuple[str, ...]:
    """The statuses of unfinished trials that should run again."""
    if limits.rerun_failed:
        return FAILED
    return (CANCELED,) if limits.rerun_canceled else ()


class SearchState:
    """The trials of one search, its random stream, and the actions of the current event.

    `initial` are the values of the first trials, by position in the space; others are drawn.
    """

    def __init__(
        self,
        space: Space,
        stream: Stream,
        proposals: Proposals,
        initial: Sequence[dict[int, Any]] = (),
    ) -> None:
        self.space = space
        self.initial = initial
        self.stream = stream
        self.proposals = proposals
        self.trials: list[Trial] = []
        self.by_request: dict[str, Trial] = {}
        self.live: dict[int, Trial] = {}  # in training, by number
        self.num_exited = 0
        self.num_errored = 0
        self.num_canceled = 0
        self.is_closing = False  # nothing new may start
        self.steps = 0  # batches trained at the validation that is being processed
        self.actions: list[Action] = []

    def create(
        self,
        bracket: int = 0,
        hparams: dict[str, Any] | None = None,
        reason: str = "",
        seed: int | None = None,
    ) -> Trial:
        """Ask for a new trial; without `hparams`, the next sample of the stream or of the model.

        Without a `seed`, it gets the next one of the stream, which is drawn in any case.
        """
        number, point = len(self.trials), None
        if hparams is None:
            point = self.space.draw(self.stream)
            if number < len(self.initial):
                point = self.space.moved(point, self.initial[number])
                hparams = self.space.values(point, self.initial[number])
                reason = reason or f"configuration {number + 1} of `searcher.initial`"
                self.proposals.note(number, point)
            else:
                chosen = self.proposals.point(number, point, self.live)
                point, reason = chosen.point, reason or chosen.reason
                hparams = self.space.values(point)
        trial = Trial(number, self.stream.request_id(), bracket)
        drawn = self.stream.trial_seed()
        if self.proposals.needs_points:
            trial.point = None if point is None else self.space.settled(point)
        self._add(trial)
        self.actions.append(
            Create(trial.request_id, drawn if seed is None else seed, hparams, reason)
        )
        return trial

    def fork(
        self,
        parent: Trial,
        at: int,
        hparams: dict[str, Any],
        changed: dict[str, list[Any]],
        bracket: int,
        reason: str,
    ) -> Trial:
        """Ask for a new trial that shares the first batches of another one."""
        trial = Trial(len(self.trials), self.stream.request_id(), bracket)
        seed = self.stream.trial_seed()
        self._add(trial)
        self.actions.append(
            Fork(trial.request_id, seed, hparams, reason, parent.request_id, at, changed)
        )
        return trial

    def _add(self, trial: Trial) -> None:
        self.trials.append(trial)
        self.by_request[trial.request_id] = trial
        self.live[trial.number] = trial

    def stop(self, trial: Trial, reason: str) -> None:
        self._leave(trial, STOPPED)
        self.actions.append(Stop(trial.request_id, reason))

    def close(self, reason: str) -> None:
        """End all trials, and start nothing any more; methods learn of it when trials exit."""
        self.is_closing = True
        for trial in self.trials:
            if trial.exited or trial.status not in (RUNNING, PAUSING, PAUSED):
                continue
            if trial.status == RUNNING:
                trial.status = ENDING
            self.actions.append(Stop(trial.request_id, reason))

    def pause(self, trial: Trial, reason: str) -> None:
        self._leave(trial, PAUSING)
        self.actions.append(Pause(trial.request_id, reason))

    def resume(self, trial: Trial, reason: str) -> None:
        if trial.exited:
            trial.exited = False
            self.num_exited -= 1
            self.num_errored -= trial.status == ERRORED
            self.num_canceled -= trial.status == CANCELED
        trial.status, trial.progress = RUNNING, 0.0
        self.live[trial.number] = trial
        self.actions.append(Resume(trial.request_id, reason))

    def continue_trial(self, trial: Trial, reason: str) -> None:
        self.actions.append(Continue(trial.request_id, reason))

    def free_checkpoints(self, trial: Trial, reason: str) -> None:
        self.actions.append(FreeCheckpoints(trial.request_id, reason))

    def fail(self, trial: Trial, reason: str) -> None:
        trial.status = FAILING
        self.actions.append(FailTrial(trial.request_id, reason))

    def revive(self, trial: Trial) -> None:
        """Count a trial that was ended from outside as paused again: it may be resumed."""
        self.num_errored -= trial.status == ERRORED
        self.num_canceled -= trial.status == CANCELED
        trial.status = PAUSED

    def end(self, trial: Trial, status: str) -> None:
        """Record that a trial ended, by itself or because it was stopped."""
        self._leave(trial, status)
        self.num_errored += status == ERRORED
        self.num_canceled += status == CANCELED

    def exit(self, trial: Trial) -> None:
        trial.exited = True
        self.num_exited += 1

    def _leave(self, trial: Trial, status: str) -> None:
        trial.status = status
        self.live.pop(trial.number, None)

    def to_json(self) -> dict[str, Any]:
        return {
            "is_closing": self.is_closing,
            "stream": self.stream.to_json(),
            "trials": [trial.to_json() for trial in self.trials],
        }

    def load(self, data: dict[str, Any]) -> None:
        self.stream = Stream.from_json(data["stream"])
        self.is_closing = data["is_closing"]
        for number, row in enumerate(data["trials"]):
            trial = Trial.from_json(number, row)
            self.trials.append(trial)
            self.by_request[trial.request_id] = trial
            if trial.point is not None:
                self.proposals.points[number] = trial.point
            if trial.status in OCCUPIED:
                self.live[number] = trial
            self.num_exited += trial.exited
            self.num_errored += trial.status == ERRORED
            self.num_canceled += trial.status == CANCELED
