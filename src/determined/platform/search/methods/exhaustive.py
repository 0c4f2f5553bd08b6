"""Searches that train every trial to the end: `single`, `random`, `grid`."""

from __future__ import annotations

from typing import Any

from determined.platform.search.events import LimitsRaised
from determined.platform.search.search_state import (
    DONE,
    INVALID,
    RUNNING,
    SearchState,
    Trial,
    unfinished_to_rerun,
)
from determined.platform.search.settings import Settings


class Exhaustive:
    """Creates a fixed number of trials, a few at a time; results have no influence."""

    def __init__(self, settings: Settings, search: SearchState) -> None:
        self._name = settings.name
        self._grid = search.space.grid() if settings.name == "grid" else None
        self._limit = settings.max_concurrent_trials
        self._total = {"single": 1, "grid": len(self._grid or ())}.get(
            settings.name, settings.max_trials
        )
        self._created = 0
        self._invalid = 0
        self._again: list[int] = []

    def initial(self, search: SearchState) -> None:
        self._fill(search)

    def validated(self, search: SearchState, trial: Trial, value: float, time: int) -> None:
        """Nothing is decided by results."""

    def paused(self, search: SearchState, trial: Trial) -> None:
        """Nothing pauses trials."""

    def exited_early(self, search: SearchState, trial: Trial, status: str) -> None:
        search.end(trial, status)
        if status == INVALID and self._name == "random":
            self._invalid += 1

    def exited(self, search: SearchState, trial: Trial) -> None:
        if trial.status == RUNNING:
            search.end(trial, DONE)
        if trial.best is not None and trial.status == DONE:
            search.proposals.results.add(0, trial.best, trial.number)
        self._fill(search)

    def raised(self, search: SearchState, limits: LimitsRaised) -> None:
        if limits.max_trials is not None and self._name == "random":
            self._total = max(self._total, limits.max_trials)
        longer = limits.max_length is not None or limits.max_time is not None
        statuses = [*unfinished_to_rerun(limits)]
        if longer or limits.rerun_finished:
            statuses.append(DONE)
        if limits.rerun_finished and self._name == "single":
            statuses.append(INVALID)  # its values may be different now
        queued = set(self._again)
        self._again += [
            trial.number
            for trial in search.trials
            if trial.status in statuses and trial.exited and trial.number not in queued
        ]
        self._fill(search)

    def _fill(self, search: SearchState) -> None:
        while not search.is_closing and (not self._limit or len(search.live) < self._limit):
            if self._again:
                self._run_again(search, search.trials[self._again.pop(0)])
            elif self._created - self._invalid < self._total:
                self._create(search)
            else:
                break

    def _run_again(self, search: SearchState, trial: Trial) -> None:
        if trial.status == DONE:
            if trial.best is not None:
                search.proposals.results.remove(0, trial.best, trial.number)
            search.resume(trial, "finished before; trains longer")
        else:
            search.resume(trial, "did not finish before; runs again")

    def _create(self, search: SearchState) -> None:
        if self._grid is not None:
            left = self._total - self._created
            place = f"point {self._created + 1} of {self._total} of the grid"
            search.create(hparams=self._grid[left - 1], reason=place)
        elif self._name == "single" and search.space.searched:
            names = ", ".join(leaf.name for leaf in search.space.searched)
            search.create(
                reason=f"the only sample, drawn from ranges: {names}; a single experiment does not "
                "search for better values"
            )
        else:
            search.create(reason="the only trial" if self._name == "single" else "")
        self._created += 1

    def progress(self, search: SearchState) -> float:
        whole = self._total if self._name == "grid" else self._created - self._invalid
        if whole <= 0:
            return 0.0
        closed = len(search.trials) - len(search.live) - self._invalid
        return min((closed + sum(trial.progress for trial in search.live.values())) / whole, 1.0)

    def load_results(self, search: SearchState) -> None:
        for trial in search.trials:
            if trial.best is not None and trial.status == DONE:
                search.proposals.results.add(0, trial.best, trial.number)

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
