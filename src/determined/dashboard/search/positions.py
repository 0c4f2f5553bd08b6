"""The brackets and rungs of a search's trials, from a search restored from its records.

A restored search is cached and replays only new records when it is requested again.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from determined.platform.search.searcher import Searcher
from determined.store import Experiment

if TYPE_CHECKING:
    from determined.dashboard.view import View

_HALVING = ("async_halving", "adaptive_asha")
_MOST_KEPT = 16


@dataclass
class _Kept:
    searcher: Searcher
    number: int


class Searches:
    """A cache of the searches requested last. May be shared by threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._kept: dict[int, _Kept] = {}

    def find(self, view: View, record: Experiment) -> Searcher | None:
        """The search of an experiment with rungs; None for other experiments."""
        origin = record.environment.get("searched_with") or record.config
        if origin.get("searcher", {}).get("name") not in _HALVING:
            return None
        with self._guard:
            kept = self._kept.pop(record.id, None) or self._restored(view, record, origin)
            for step in view.reader.search_steps(record.id, kept.number):
                kept.searcher.replay(step.event)
                kept.number = step.number
            while len(self._kept) >= _MOST_KEPT:
                self._kept.pop(next(iter(self._kept)))
            self._kept[record.id] = kept
            return kept.searcher

    @staticmethod
    def _restored(view: View, record: Experiment, origin: dict[str, Any]) -> _Kept:
        snapshot = view.reader.searcher_state(record.id)
        number = 0 if snapshot is None else int(snapshot["num_events"])
        searcher = Searcher.restore(
            origin["searcher"],
            origin["hyperparameters"],
            origin["reproducibility"]["experiment_seed"],
            snapshot,
            [],
        )
        return _Kept(searcher, number)


def positions_of(view: View, experiment_id: int) -> dict[str, tuple[int, int]]:
    """The bracket and rung of each trial of a search, by request id."""
    record = view.experiment(experiment_id)
    searcher = view.searches.find(view, record)
    if searcher is None:
        return {}
    return {t.request_id: (t.bracket, t.rung) for t in searcher.state.trials}
