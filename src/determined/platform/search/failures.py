"""Detect a script or machine that fails every trial, before all trials are used up."""

from __future__ import annotations

from typing import Any

REPEATS = 3  # trials in a row with the same traceback before any progress


class FailureStreak:
    """Counts consecutive trials that failed with the same error before any training."""

    def __init__(self) -> None:
        self.digest: str | None = None
        self.count = 0

    def failed(self, digest: str | None, progressed: bool) -> str | None:
        """Count a failure; return the reason if it is time to pause the experiment."""
        if digest is None or progressed:
            self.reset()
            return None
        self.count = self.count + 1 if digest == self.digest else 1
        self.digest = digest
        if self.count < REPEATS:
            return None
        self.reset()
        return (
            f"paused: the last {REPEATS} trials failed with the same traceback before any "
            "progress. See the log of one of them, fix the script or the machine, then activate "
            "the experiment or create it again."
        )

    def reset(self) -> None:
        self.digest, self.count = None, 0

    def to_json(self) -> list[Any]:
        return [self.digest, self.count]

    def load(self, data: list[Any]) -> None:
        self.digest, self.count = data
