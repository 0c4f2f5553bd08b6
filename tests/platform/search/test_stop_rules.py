"""`searcher.stop_when` ends a search by its results, or by how much was trained."""

from __future__ import annotations

from typing import Any

from determined.platform.search import events as e
from determined.platform.search.searcher import Searcher
from tests.platform.search.scripted import SPACE


class Played:
    """A search whose trials report and end in the order of a script."""

    def __init__(self, **search: Any) -> None:
        usual = {"name": "random", "metric": "loss", "max_trials": 50, "max_concurrent_trials": 2}
        self.searcher = Searcher(usual | search, SPACE, 0)
        self.actions: list[e.Action] = []
        self.ids: list[str] = []
        self.handle(e.InitialTrials())

    def handle(self, event: e.Event) -> list[e.Action]:
        actions = self.searcher.handle(event).actions
        self.actions += actions
        self.ids += [action.request_id for action in actions if isinstance(action, e.Create)]
        return actions

    def report(self, number: int, steps: int = 10, **metrics: float) -> list[e.Action]:
        return self.handle(e.ValidationCompleted(self.ids[number], dict(metrics), steps))

    def end(self, number: int) -> list[e.Action]:
        return self.handle(e.TrialExited(self.ids[number]))


def test_trials_in_a_row_without_a_new_best_end_the_search() -> None:
    search = Played(stop_when={"no_improvement_for": 3})
    for number, loss in enumerate([5.0, 6.0, 4.0, 4.0, 9.0]):
        search.report(number, loss=loss)
        assert not any(isinstance(action, e.Stop) for action in search.end(number))
    search.report(6, loss=8.0)  # runs beside it: has reported, but not ended
    search.report(5, loss=7.0)
    (stop,) = search.end(5)
    assert stop == e.Stop(search.ids[6], "the search ends: no improvement in 3 trials")
    assert search.report(6, loss=1.0) == []  # too late
    (shutdown,) = search.end(6)
    assert shutdown == e.Shutdown(reason="no improvement in 3 trials; all 7 trials ended")


def test_trials_without_a_result_do_not_count() -> None:
    search = Played(stop_when={"no_improvement_for": 1})
    search.report(0, loss=1.0)
    search.end(0)
    search.handle(e.TrialExitedEarly(search.ids[1], e.ERRORED))
    search.end(1)
    search.end(2)
    assert not search.searcher.state.is_closing
    search.report(3, loss=2.0)
    search.end(3)
    assert search.searcher.state.is_closing


def test_all_training_together_is_limited() -> None:
    search = Played(stop_when={"max_total_units": 50})
    search.report(0, steps=20, loss=1.0)
    search.report(1, steps=20, loss=1.0)
    search.report(0, steps=20, loss=1.0)  # again, after a restart
    assert not search.searcher.state.is_closing
    stopped = search.report(0, steps=30, loss=1.0)
    reason = "the search ends: 50 batches were trained, as max_total_units allows"
    assert stopped == [e.Stop(request_id, reason) for request_id in search.ids]


def test_a_continued_search_counts_again() -> None:
    search = Played(stop_when={"no_improvement_for": 1}, max_concurrent_trials=1)
    for number, loss in enumerate([1.0, 2.0]):
        search.report(number, loss=loss)
        search.end(number)
    assert search.searcher.is_over
    search.handle(e.LimitsRaised(max_trials=60))
    search.report(2, loss=0.5)
    search.end(2)
    assert not search.searcher.is_over
    search.report(3, loss=0.7)
    search.end(3)
    assert search.searcher.is_over
