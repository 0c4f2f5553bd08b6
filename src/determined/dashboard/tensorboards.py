"""TensorBoards requested by pages: one for each set of trials, ended with the dashboard.

They are the same as those of `det tensorboard start`: read-only, and for this machine only.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from determined.platform.service import Service
from determined.platform.tensorboards.server import (
    MOST_TRIALS,
    TensorBoardServer,
    check_installed,
    trials_of,
)

_MOST = 4  # each takes a few hundred megabytes; the least recently requested one ends


@dataclass(frozen=True)
class Opened:
    """Where a TensorBoard is, and how many of how many trials it shows."""

    url: str
    shown: int
    trials: int


class TensorBoards:
    """The TensorBoards of one dashboard. Shared by threads."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._guard = threading.Lock()
        self._open: dict[tuple[int, ...], TensorBoardServer] = {}
        self._is_closed = False

    def open(self, experiment_ids: Sequence[int], trial_ids: Sequence[int]) -> Opened:
        """The TensorBoard of these trials, started if none is running."""
        trials = trials_of(self._service, experiment_ids, trial_ids)
        check_installed()
        shown = trials[:MOST_TRIALS]
        key = tuple(sorted(trial.id for trial in shown))
        with self._guard:  # one at a time: two clicks must not start two
            found = self._open.pop(key, None)
            if found is not None and not found.is_alive:
                found.close()
                found = None
            if found is None:
                found = TensorBoardServer(self._service, shown)
            self._open[key] = found
            while len(self._open) > _MOST or (self._open and self._is_closed):
                self._open.pop(next(iter(self._open))).close()
        return Opened(found.url, len(shown), len(trials))

    def close(self) -> None:
        """End them all, including one that is just starting."""
        self._is_closed = True
        with self._guard:
            while self._open:
                self._open.popitem()[1].close()
