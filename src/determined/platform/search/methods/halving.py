"""`async_halving` (one bracket) and `adaptive_asha` (several independent ones)."""

from __future__ import annotations

from typing import Any

from determined.platform.search.events import LimitsRaised
from determined.platform.search.methods.bracket import Bracket
from determined.platform.search.methods.bracket_plans import more_trials, plan_brackets
from determined.platform.search.sampling.results import WORST
from determined.platform.search.search_state import (
    CANCELED,
    PAUSED,
    SearchState,
    Trial,
    unfinished_to_rerun,
)
from determined.platform.search.settings import Settings


class Halving:
    """Passes every event to the bracket that created the trial."""

    def __init__(self, settings: Settings) -> None:
        self._divisor = settings.divisor
        self.brackets = [
            Bracket(i, plan, settings) for i, plan in enumerate(plan_brackets(settings))
        ]

    def initial(self, search: SearchState) -> None:
        for bracket in self.brackets:
            bracket.fill(search)

    def validated(self, search: SearchState, trial: Trial, value: float, time: int) -> None:
        self.brackets[trial.bracket].validated(search, trial, value, time)

    def paused(self, search: SearchState, trial: Trial) -> None:
        trial.status = PAUSED
        self.brackets[trial.bracket].fill(search)

    def exited_early(self, search: SearchState, trial: Trial, status: str) -> None:
        self.brackets[trial.bracket].exited_early(search, trial, status)

    def exited(self, search: SearchState, trial: Trial) -> None:
        self.brackets[trial.bracket].exited(search, trial)

    def raised(self, search: SearchState, limits: LimitsRaised) -> None:
        extra = (limits.max_trials or 0) - sum(bracket.max_trials for bracket in self.brackets)
        if extra > 0:
            sizes = [len(bracket.rungs) for bracket in self.brackets]
            for bracket, more in zip(
                self.brackets, more_trials(extra, self._divisor, sizes), strict=True
            ):
                bracket.max_trials += more
        longer = max(limits.max_time or 0, limits.max_length or 0)
        for bracket in self.brackets:
            bracket.extend(longer)
            bracket.reopen()
            bracket.rerun(search, unfinished_to_rerun(limits))
            bracket.fill(search)

    def progress(self, search: SearchState) -> float:
        return sum(bracket.progress() for bracket in self.brackets) / len(self.brackets)

    def load_results(self, search: SearchState) -> None:
        for trial in search.trials:
            self.brackets[trial.bracket].compare_all(trial)
            rungs = self.brackets[trial.bracket].rungs
            for rung, value in zip(rungs, trial.values, strict=False):
                if value < WORST or trial.status != CANCELED:
                    search.proposals.results.add(rung.units, value, trial.number)

    def to_json(self) -> dict[str, Any]:
        return {"brackets": [bracket.to_json() for bracket in self.brackets]}

    def load(self, data: dict[str, Any]) -> None:
        for bracket, saved in zip(self.brackets, data["brackets"], strict=True):
            bracket.load(saved)
