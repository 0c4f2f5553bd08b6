"""When a whole search ends early: `searcher.stop_when`.

    no_improvement_for    this many trials ended in a row, none with a new best result
    max_total_units       the training of all trials together

A search that is continued starts to count again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from determined.platform.search.events import Action, Fork
from determined.platform.search.search_state import INVALID, SearchState, Trial
from determined.platform.search.settings import Settings


class StopRules:
    """What the rules of a search have counted so far; it is due when there is a `reason`."""

    def __init__(self, settings: Settings) -> None:
        rules = settings.stop_when
        self._most_trials: int | None = rules.get("no_improvement_for")
        self._most_units: int | None = rules.get("max_total_units")
        self._unit = settings.time_metric
        self.are_given = self._most_trials is not None or self._most_units is not None
        self.counts_units = self._most_units is not None
        self._since = 0  # trials that ended since the last new best
        self._best: list[Any] | None = None  # the value, and the trial's number
        self._trained: dict[int, int] = {}  # trial -> units; forks have those of their parents
        self._total = 0
        self.reason = ""

    def improved(self, trial: Trial, value: float) -> None:
        """A trial reported a result that is better than its others; smaller is better."""
        if self._best is None or value < self._best[0]:
            self._best, self._since = [value, trial.number], 0

    def trained(self, trial: Trial, units: int) -> None:
        """A trial reported how long it has trained."""
        before = self._trained.get(trial.number, 0)
        if self._most_units is None or units <= before:
            return
        self._trained[trial.number] = units
        self._total += units - before
        if self._total >= self._most_units:
            self._end(f"{self._total} {self._unit} were trained, as max_total_units allows")

    def exited(self, trial: Trial) -> None:
        """A trial ended; those without a result say nothing."""
        if self._most_trials is None or trial.best is None or trial.status == INVALID:
            return
        if self._best is not None and self._best[1] == trial.number:
            return
        self._since += 1
        if self._since >= self._most_trials:
            self._end(f"no improvement in {self._since} trials")

    def acted(self, search: SearchState, actions: Iterable[Action]) -> None:
        """Count for forks only what they train themselves."""
        for action in actions if self.counts_units else ():
            if isinstance(action, Fork):
                parent, fork = (search.by_request[i] for i in (action.parent_id, action.request_id))
                self._trained[fork.number] = self._trained.get(parent.number, 0)

    def _end(self, reason: str) -> None:
        self.reason = self.reason or reason

    def restart(self) -> None:
        """Count again from here: the search is continued."""
        self._since, self._total, self.reason = 0, 0, ""

    def to_json(self) -> dict[str, Any]:
        return {
            "since": self._since,
            "best": self._best,
            "trained": [list(entry) for entry in self._trained.items()],
            "total": self._total,
            "reason": self.reason,
        }

    def load(self, data: dict[str, Any]) -> None:
        self._since, self._best = data["since"], data["best"]
        self._trained = dict(data["trained"])
        self._total, self.reason = data["total"], data["reason"]
