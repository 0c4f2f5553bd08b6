"""The state of a search: what is saved of it, and the trials that are given to it."""

from __future__ import annotations

from typing import Any

import pytest

from determined.platform.search import events as e
from determined.platform.search.canonical_json import dump, load
from determined.platform.search.searcher import Searcher
from tests.platform.search.driver import Driver
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


NESTED: dict[str, Any] = {
    "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
    "n": {"type": "int", "minval": 1, "maxval": 8},
    "net": {"name": {"type": "categorical", "vals": ["a", {"deep": 3}, True]}, "fixed": 7},
}


@pytest.mark.parametrize("sampler", ["random", "auto"])
def test_given_configurations_come_first_with_their_exact_values(sampler: str) -> None:
    given = [{"lr": 0.001, "net": {"name": {"deep": 3}}}, {"n": 8, "net": {"name": True}}]
    plain = halving(max_trials=12, max_concurrent_trials=4, sampler=sampler)
    config = {**plain, "initial": given}
    driver = Driver(Searcher(config, NESTED, 5), seed=1, failures=0.0)
    driver.play()
    actions = [action for step in driver.steps for action in step.actions]
    first, second, third, *_ = [a for a in actions if isinstance(a, e.Create)]
    assert first.hparams["lr"] == 0.001
    assert first.hparams["net"] == {"name": {"deep": 3}, "fixed": 7}
    assert second.hparams["n"] == 8
    assert second.hparams["net"]["name"] is True
    assert first.reason == "configuration 1 of `searcher.initial`"
    assert "initial" not in third.reason
    if sampler == "random":  # what is not given is drawn as ever
        begun = Searcher(plain, NESTED, 5).handle(e.InitialTrials()).actions
        drawn = [action for action in begun if isinstance(action, e.Create)]
        assert first.hparams["n"] == drawn[0].hparams["n"]
        assert (third.hparams, third.trial_seed) == (drawn[2].hparams, drawn[2].trial_seed)
    records = [load(dump(step.record)) for step in driver.steps]
    again = Searcher.restore(config, NESTED, 5, records=records)
    assert dump(again.snapshot()) == dump(driver.searcher.snapshot())
    cut = Searcher.restore(config, NESTED, 5, load(dump(driver.searcher.snapshot())))
    assert dump(cut.snapshot()) == dump(driver.searcher.snapshot())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lr": 0.2}, r"searcher.initial\[0\].lr: expected a number from 0.0001 to 0.1, got 0.2"),
        ({"lr": True}, r"\.lr: expected a number"),
        ({"n": 2.0}, r"\.n: expected an integer from 1 to 8, got 2.0"),
        ({"net": {"name": 1}}, r"\.net.name: expected one of 'a', {'deep': 3}, True, got 1"),
        ({"net": {"fixed": 7}}, r"\.net.fixed: not a searched hyperparameter; these are: lr, n"),
        ({"nett": {"name": "a"}}, r"\.nett: not a searched hyperparameter"),
    ],
)
def test_a_given_configuration_must_be_in_the_space(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Searcher({**halving(), "initial": [given]}, NESTED, 1)


def test_more_given_configurations_than_trials_are_refused() -> None:
    with pytest.raises(ValueError, match=r"searcher.initial: expected at most max_trials \(1\)"):
        Searcher({**halving(max_trials=1), "initial": [{}, {}]}, NESTED, 1)
