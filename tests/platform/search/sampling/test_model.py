"""A model on the rungs: what it sees, what is recorded, what a restart changes (nothing)."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from determined.platform.search import events as e
from determined.platform.search.canonical_json import dump, load
from determined.platform.search.sampling.proposals import Proposals
from determined.platform.search.sampling.results import (
    ENOUGH,
    MOST_BEST,
    MOST_NEWEST,
    WORST,
    Level,
    Results,
)
from determined.platform.search.searcher import Searcher
from determined.platform.search.simulation.simulator import Simulator
from determined.platform.search.space import Space
from tests.platform.search.scripted import halving

SPACE: dict[str, Any] = {
    "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
    "width": {"type": "int", "minval": 8, "maxval": 64},
    "optimizer": {
        "name": {"type": "categorical", "vals": ["sgd", {"adam": [0.9, 0.99]}, None]},
        "momentum": {"type": "double", "minval": 0.0, "maxval": 1.0},
    },
    "fixed": [1, 2],
}


class Bowl:
    """The closer to one point, the better, at every length."""

    def value(self, hparams: dict[str, Any], seed: int, units: int) -> float:
        optimizer = hparams["optimizer"]
        miss = abs(optimizer["momentum"] - 0.25) + abs(hparams["width"] - 20) / 56
        return float(miss + (optimizer["name"] != "sgd") + 1 / units)

    def seconds(self, hparams: dict[str, Any], seed: int) -> float:
        return 1.0 + seed % 7 / 10


def search(sampler: str, **changes: Any) -> dict[str, Any]:
    return halving(sampler=sampler, max_trials=60, max_concurrent_trials=4, **changes)


def play(searcher: Searcher) -> Any:
    return Simulator(searcher, Bowl(), 4, [1, 4, 16], keep_steps=True).run()


def created(steps: list[Any]) -> list[e.Create]:
    return [a for step in steps for a in step.actions if isinstance(a, e.Create)]


@pytest.mark.parametrize("sampler", ["auto", "tpe", "cmaes", "qmc"])
def test_all_types_of_hyperparameters_are_proposed_within_their_ranges(sampler: str) -> None:
    trials = created(play(Searcher(search(sampler), SPACE, 1)).steps)
    assert len(trials) == 60
    assert sum(sampler in trial.reason for trial in trials) >= 20
    for hparams in (trial.hparams for trial in trials):
        assert 1e-4 <= hparams["lr"] < 0.1
        assert isinstance(hparams["width"], int)
        assert 8 <= hparams["width"] <= 64
        assert hparams["optimizer"]["name"] in SPACE["optimizer"]["name"]["vals"]
        assert 0 <= hparams["optimizer"]["momentum"] < 1
        assert hparams["fixed"] == [1, 2]


def test_a_model_waits_for_a_dozen_results_and_leaves_a_quarter_to_chance() -> None:
    trials = created(play(Searcher(search("tpe"), SPACE, 1)).steps)
    proposed = ["tpe" in trial.reason for trial in trials]
    assert not any(proposed[:ENOUGH])
    assert all(proposed[number] is (number % 4 != 3) for number in range(24, 60))
    assert trials[24].reason.startswith("proposed by tpe from ")


def test_a_model_repeats_no_trial_even_where_it_has_found_the_best() -> None:
    space = {"n": {"type": "int", "minval": 1, "maxval": 99}, "k": SPACE["optimizer"]["name"]}
    proposals = Proposals("tpe", Space(space), 1, "epochs")
    for number in range(ENOUGH):
        proposals.points[number] = [0, number + 1]
        proposals.results.add(4, float(number), number)
    reasons = []
    for number in range(ENOUGH, 20):
        earlier = list(proposals.points.values())
        choice = proposals.point(number, [1, 60 + number], {})
        if choice.reason.startswith("proposed by tpe"):
            assert choice.point not in earlier
            reasons.append(choice.reason)
    assert any(reason.endswith(", away from earlier trials") for reason in reasons)


def test_a_model_finds_what_chance_rarely_finds() -> None:
    found = {}
    for sampler in ("random", "tpe"):
        trials = created(play(Searcher(search(sampler), SPACE, 1)).steps)[30:]
        found[sampler] = sorted(Bowl().value(trial.hparams, 0, 1) - 1 for trial in trials)
    assert found["tpe"][0] < found["random"][0]
    assert found["tpe"][15] < 0.5 * found["random"][15]  # the median


@pytest.mark.parametrize("sampler", ["auto", "tpe", "cmaes", "qmc"])
@pytest.mark.parametrize("name", ["random", "adaptive_asha"])
def test_a_search_with_a_model_is_repeated_without_asking_it(
    sampler: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = search(sampler, name=name)
    searcher = Searcher(config, SPACE, 1)
    steps = play(searcher).steps
    same = Searcher(config, SPACE, 1)
    assert [step.actions for step in play(same).steps] == [step.actions for step in steps]

    def refuse(self: Proposals, request: object) -> list[float]:
        raise AssertionError("a replay asked the model")

    monkeypatch.setattr(Proposals, "_propose", refuse)
    records = [load(dump(step.record)) for step in steps]
    again = Searcher.restore(config, SPACE, 1, records=records)
    assert dump(again.snapshot()) == dump(searcher.snapshot())


@pytest.mark.parametrize("sampler", ["auto", "tpe", "cmaes", "qmc"])
def test_a_model_proposes_the_same_after_a_restart(sampler: str) -> None:
    config = search(sampler, stop_once=False)
    searcher = Searcher(config, SPACE, 1)
    steps = play(searcher).steps
    for cut in range(20, len(steps), 29):
        records = [load(dump(step.record)) for step in steps[:cut]]
        before = Searcher.restore(config, SPACE, 1, records=records)
        restored = Searcher.restore(config, SPACE, 1, load(dump(before.snapshot())))
        for step in steps[cut : cut + 12]:
            live = restored.handle(e.event_from_json(step.record["event"]))  # asks the model
            assert live.actions == step.actions


@pytest.mark.slow
def test_a_gaussian_process_proposes_too() -> None:
    space = {"momentum": SPACE["optimizer"]["momentum"], "n": SPACE["width"]}
    searcher = Searcher(search("gp"), space, 1)
    proposals = searcher.state.proposals
    for number in range(ENOUGH):
        proposals.points[number] = [number / ENOUGH, 8 + number]
        proposals.results.add(4, abs(number - 5), number)
    choice = proposals.point(ENOUGH, [0.5, 9], {})
    assert "gp from 12 results at 4 epochs" in choice.reason
    assert 0 <= choice.point[0] < 1
    assert isinstance(choice.point[1], int)


def test_a_model_sees_the_best_and_the_newest_of_many_results() -> None:
    level = Level()
    for number in range(1000):
        level.add(float(1000 - number if number >= 500 else number), number)
    chosen = level.chosen()
    assert len(chosen) == MOST_BEST + MOST_NEWEST
    assert {999, 998, 0, 1} <= chosen.keys()
    assert list(chosen) == sorted(chosen)


def test_the_highest_rung_with_enough_real_results_counts() -> None:
    results = Results()
    for number in range(ENOUGH):
        results.add(1, 0.5, number)
        results.add(4, 0.5 if number else WORST, number)
    found = results.highest()
    assert found is not None
    assert found[0] == 1
    results.add(4, 0.1, 99)
    found = results.highest()
    assert found is not None
    assert found[0] == 4


def test_without_optuna_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r"determined-pytorch\[optuna\]"):
        Searcher(search("tpe"), SPACE, 1).handle(e.InitialTrials())


def test_a_model_that_fails_is_replaced_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Proposals, request: object) -> list[float]:
        raise FloatingPointError("singular")

    monkeypatch.setattr(Proposals, "_propose", fail)
    searcher = Searcher(search("tpe"), SPACE, 1)
    steps = play(searcher).steps
    reasons = [trial.reason for trial in created(steps)]
    assert len(reasons) == 60
    assert any("because tpe failed: FloatingPointError('singular')" in reason for reason in reasons)
    again = Searcher.restore(search("tpe"), SPACE, 1, records=[step.record for step in steps])
    assert dump(again.snapshot()) == dump(searcher.snapshot())
