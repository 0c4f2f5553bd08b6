"""`async_halving` (one bracket) and `adaptive_asha` (several independent ones)."""

from __future__ import annotations

from typing import Any

from determined.platform.search import trials as t
from determined.platform.search.events import LimitsRaised
from determined.platform.search.methods.bracket import Bracket
from determined.platform.search.methods.bracket_sizes import more_trials, shapes
from determined.platform.search.search_state import Desk
from determined.platform.search.settings import Settings
from determined.platform.search.trials import WORST, Trial


class Halving:
    """Passes every event to the bracket that created the trial."""

    def __init__(self, settings: Settings) -> None:
        self._divisor = settings.divisor
        self.brackets = [
            Bracket(i, shape, settings.divisor, settings.stop_once, settings.time_metric)
            for i, shape in enumerate(shapes(settings))
        ]

    def initial(self, desk: Desk) -> None:
        for bracket in self.brackets:
            bracket.fill(desk)

    def validated(self, desk: Desk, trial: Trial, value: float, time: int) -> None:
        self.brackets[trial.bracket].validated(desk, trial, value, time)

    def paused(self, desk: Desk, trial: Trial) -> None:
        trial.status = t.PAUSED
        self.brackets[trial.bracket].fill(desk)

    def exited_early(self, desk: Desk, trial: Trial, status: str) -> None:
        self.brackets[trial.bracket].exited_early(desk, trial, status)

    def exited(self, desk: Desk, trial: Trial) -> None:
        self.brackets[trial.bracket].exited(desk, trial)

    def raised(self, desk: Desk, limits: LimitsRaised) -> None:
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
            bracket.rerun(desk, limits.unfinished)
            bracket.fill(desk)

    def progress(self, desk: Desk) -> float:
        return sum(bracket.progress() for bracket in self.brackets) / len(self.brackets)

    def load_results(self, desk: Desk) -> None:
        for trial in desk.trials:
            rungs = self.brackets[trial.bracket].rungs
            for rung, value in zip(rungs, trial.values, strict=False):
                if value < WORST or trial.status != t.CANCELED:
                    desk.proposals.results.add(rung.units, value, trial.number)

    def to_json(self) -> dict[str, Any]:
        return {"brackets": [bracket.to_json() for bracket in self.brackets]}

    def load(self, data: dict[str, Any]) -> None:
        for bracket, saved in zip(self.brackets, data["brackets"], strict=True):
            bracket.load(saved)
