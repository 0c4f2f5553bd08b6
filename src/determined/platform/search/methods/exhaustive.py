"""Searches that train every trial to the end: `single`, `random`, `grid`."""

from __future__ import annotations

from typing import Any

from determined.platform.search import trials as t
from determined.platform.search.events import LimitsRaised
from determined.platform.search.search_state import Desk
from determined.platform.search.settings import Settings
from determined.platform.search.trials import Trial


class Plain:
    """Creates a fixed number of trials, a few at a time; results have no influence."""

    def __init__(self, settings: Settings, desk: Desk) -> None:
        self._name = settings.name
        self._grid = desk.space.grid() if settings.name == "grid" else None
        self._limit = settings.max_concurrent_trials
        self._total = {"single": 1, "grid": len(self._grid or ())}.get(
            settings.name, settings.max_trials
        )
        self._created = 0
        self._invalid = 0
        self._again: list[int] = []

    def initial(self, desk: Desk) -> None:
        self._fill(desk)

    def validated(self, desk: Desk, trial: Trial, value: float, time: int) -> None:
        """Nothing is decided by results."""

    def paused(self, desk: Desk, trial: Trial) -> None:
        """Nothing pauses trials."""

    def exited_early(self, desk: Desk, trial: Trial, status: str) -> None:
        desk.end(trial, status)
        if status == t.INVALID and self._name == "random":
            self._invalid += 1

    def exited(self, desk: Desk, trial: Trial) -> None:
        if trial.status == t.RUNNING:
            desk.end(trial, t.DONE)
        if trial.best is not None and trial.status == t.DONE:
            desk.proposals.results.add(0, trial.best, trial.number)
        self._fill(desk)

    def raised(self, desk: Desk, limits: LimitsRaised) -> None:
        if limits.max_trials is not None and self._name == "random":
            self._total = max(self._total, limits.max_trials)
        longer = limits.max_length is not None or limits.max_time is not None
        statuses = [*limits.unfinished]
        if longer or limits.rerun_finished:
            statuses.append(t.DONE)
        if limits.rerun_finished and self._name == "single":
            statuses.append(t.INVALID)  # its values may be different now
        queued = set(self._again)
        self._again += [
            trial.number
            for trial in desk.trials
            if trial.status in statuses and trial.exited and trial.number not in queued
        ]
        self._fill(desk)

    def _fill(self, desk: Desk) -> None:
        while not desk.is_closing and (not self._limit or len(desk.live) < self._limit):
            if self._again:
                self._run_again(desk, desk.trials[self._again.pop(0)])
            elif self._created - self._invalid < self._total:
                self._create(desk)
            else:
                break

    def _run_again(self, desk: Desk, trial: Trial) -> None:
        if trial.status == t.DONE:
            if trial.best is not None:
                desk.proposals.results.remove(0, trial.best, trial.number)
            desk.resume(trial, "finished before; trains longer")
        else:
            desk.resume(trial, "did not finish before; runs again")

    def _create(self, desk: Desk) -> None:
        if self._grid is not None:
            left = self._total - self._created
            place = f"point {self._created + 1} of {self._total} of the grid"
            desk.create(hparams=self._grid[left - 1], reason=place)
        elif self._name == "single" and desk.space.searched:
            names = ", ".join(leaf.name for leaf in desk.space.searched)
            desk.create(
                reason=f"the only sample, drawn from ranges: {names}; a single experiment does not "
                "search for better values"
            )
        else:
            desk.create(reason="the only trial" if self._name == "single" else "")
        self._created += 1

    def progress(self, desk: Desk) -> float:
        whole = self._total if self._name == "grid" else self._created - self._invalid
        if whole <= 0:
            return 0.0
        closed = len(desk.trials) - len(desk.live) - self._invalid
        return min((closed + sum(trial.progress for trial in desk.live.values())) / whole, 1.0)

    def load_results(self, desk: Desk) -> None:
        for trial in desk.trials:
            if trial.best is not None and trial.status == t.DONE:
                desk.proposals.results.add(0, trial.best, trial.number)

    def to_json(self) -> dict[str, Any]:
        return {
            "total": self._total,
            "created": self._created,
            "invalid": self._invalid,
            "again": list(self._again),
        }

    def load(self, data: dict[str, Any]) -> None:
        self._total, self._created = data["total"], data["created"]
        self._invalid, self._again = data["invalid"], list(data["again"])
