"""A custom search method that stops trials that do worse than most others at the same step."""

from __future__ import annotations

from statistics import median
from typing import Any


class MedianStopping:
    """Random search, a few trials at a time; a trial below the median of its step is stopped.

    It runs in a separate process. After a crash a new one receives all events again and must give
    the same answers: random numbers come from `search.random`, and nothing depends on the clock.
    """

    def __init__(self, search: Any) -> None:
        self.search = search
        self.settings = search.config  # the `searcher` section, with any keys that we add
        self.results: dict[int, list[float]] = {}  # the results of all trials at each step
        self.num_created = 0

    def start(self) -> None:
        for _ in range(self.settings["parallel"]):
            self.create()

    def create(self) -> None:
        range_ = self.search.hyperparameters["learning_rate"]
        exponent = self.search.random.uniform(range_["minval"], range_["maxval"])
        self.search.create({"learning_rate": range_["base"] ** exponent})
        self.num_created += 1

    def validated(self, trial: int, metrics: dict[str, Any], steps: int) -> None:
        value = metrics[self.settings["metric"]]
        others = self.results.setdefault(steps, [])
        if len(others) >= self.settings["grace_trials"] and value < median(others):
            reason = f"{value:.3f} after {steps} steps, half of the others had {median(others):.3f}"
            self.search.stop(trial, reason)
        others.append(value)

    def ended(self, trial: int, reason: str | None) -> None:
        self.search.report_progress(self.num_created / self.settings["max_trials"])
        if self.num_created < self.settings["max_trials"]:
            self.create()
