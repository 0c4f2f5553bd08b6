"""What is saved of a search: stores of earlier releases hold it, so its keys do not change."""

from __future__ import annotations

from determined.platform.search import events as e
from determined.platform.search.searcher import Searcher
from tests.platform.search.scripted import SPACE, halving

_SAVED = {
    "version": 1,
    "num_events": 5,
    "is_over": False,
    "streak": [None, 0],
    "desk": {
        "is_closing": False,
        "trials": [
            [0, 0, "pausing", False, [0.5], 0.5, 0.5, None],
            [0, 1, "running", False, [0.25], 0.25, 0.0, None],
            [0, 0, "running", False, [], None, 0.0, None],
        ],
    },
    "method": {
        "brackets": [
            {
                "rungs": [[2, [0.25, 0.5], [[0.5, 0]], [], 1], [4, [], [], [], 1]],
                "max_trials": 4,
                "max_concurrent": 2,
                "created": 3,
                "invalid": 0,
                "completed": 0,
                "live": 2,
                "again": [],
            }
        ]
    },
}


def test_a_search_is_saved_as_earlier_releases_did() -> None:
    section = halving(max_trials=4, num_rungs=2, divisor=2, max_time=4, stop_once=False)
    searcher = Searcher(section, SPACE, 7)
    searcher.handle(e.InitialTrials())
    first, second = (trial.request_id for trial in searcher.state.trials)
    searcher.handle(e.ValidationCompleted(first, {"loss": 0.5, "epochs": 2}, 2))
    searcher.handle(e.ValidationCompleted(second, {"loss": 0.25, "epochs": 2}, 2))
    searcher.handle(e.TrialPaused(second))
    searcher.handle(e.Progress(first, 0.5))
    saved = searcher.snapshot()
    again = Searcher.restore(section, SPACE, 7, saved)
    assert again.snapshot() == saved
    stream = saved["desk"].pop("stream")
    assert stream.keys() == {"words", "position"}
    assert [row.pop(0) for row in saved["desk"]["trials"][:2]] == [first, second]
    saved["desk"]["trials"][2].pop(0)
    assert saved == _SAVED
