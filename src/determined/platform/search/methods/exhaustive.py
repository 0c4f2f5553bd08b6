"""Searches that train every trial to the end: `single`, `random`, `grid`."""

from __future__ import annotations

from typing import Any

from determined.platform.search.events import LimitsRaised
from determined.platform.search.sampling.randomness import Stream, repeat_seeds
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
    """Creates a fixed number of trials, a few at a time; results have no influence.

    With `repeat`, every configuration is trained with the first seed, then every one with the next:
    a search that ends early has results that can be compared.
    """

    def __init__(self, settings: Settings, search: SearchState, seed: int) -> None:
        self._name = settings.name
        self._grid = search.space.grid() if settings.name == "grid" else None
        self._limit = settings.max_concurrent_trials
        self._seeds = repeat_seeds(seed, settings.repeat) if settings.repeat > 1 else []
        self._seed = seed
        configurations = {"single": 1, "grid": len(self._grid or ())}.get(
            settings.name, settings.max_trials
        )
        self._total = configurations * max(len(self._seeds), 1)
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
            round_, index = divmod(self._created, len(self._grid))
            place = f"point {index + 1} of {len(self._grid)} of the grid"
            self._create_one(search, round_, self._grid[len(self._grid) - index - 1], place)
        elif self._name == "single":
            hparams = None
            if self._seeds:  # a new stream each time: every repeat has the same values
                hparams = search.space.values(search.space.draw(Stream(self._seed)))
            self._create_one(search, self._created, hparams, self._only(search))
        else:
            search.create()
        self._created += 1

    def _create_one(
        self, search: SearchState, round_: int, hparams: dict[str, Any] | None, reason: str
    ) -> None:
        if not self._seeds:
            search.create(hparams=hparams, reason=reason)
            return
        reason += f", seed {round_ + 1} of {len(self._seeds)}"
        search.create(hparams=hparams, reason=reason, seed=self._seeds[round_])

    def _only(self, search: SearchState) -> str:
        if not search.space.searched:
            return "the only configuration" if self._seeds else "the only trial"
        names = ", ".join(leaf.name for leaf in search.space.searched)
        reason = f"the only sample, drawn from ranges: {names}; a single experiment does not "
        return reason + "search for better values"

    def progress(self, search: SearchState) -> float:
        is_known = self._name == "grid" or self._seeds
        whole = self._total if is_known else self._created - self._invalid
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
