"""What a searcher remembers about each trial."""

from __future__ import annotations

from typing import Any

from determined.platform.search.space import Point

RUNNING = "running"
FAILING = "failing"  # ordered to fail, still running
PAUSING = "pausing"
PAUSED = "paused"
STOPPED = "stopped"  # by the searcher
DONE = "done"  # by itself
ERRORED = "errored"
CANCELED = "canceled"
INVALID = "invalid"

OCCUPIED = (RUNNING, FAILING)  # these count against `max_concurrent_trials`
FAILED = (ERRORED, CANCELED)

WORST = 1.7976931348623157e308  # the value of a trial that failed at a rung


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
