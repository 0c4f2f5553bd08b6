"""`single`, `random` and `grid`, example by example, and `repeat` with its seeds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from determined.platform.search import events as e
from determined.platform.search.canonical_json import dump, load
from determined.platform.search.sampling.randomness import repeat_seeds
from determined.platform.search.searcher import Searcher
from tests.platform.search.scripted import Script

_SPACE = {
    "lr": {"type": "log", "base": 10, "minval": -3, "maxval": -1, "count": 2},
    "net": {"width": {"type": "categorical", "vals": [8, 16, 32]}},
}


def _created(name: str, seed: int = 7, repeat: int | None = None) -> list[e.Create]:
    searcher = Searcher({"name": name, "metric": "loss"}, _SPACE, seed, repeat=repeat)
    found: list[e.Create] = []
    waiting: list[e.Event] = [e.InitialTrials()]
    while waiting:
        actions = searcher.handle(waiting.pop(0)).actions
        new = [action for action in actions if isinstance(action, e.Create)]
        waiting += [e.TrialExited(action.request_id) for action in new]
        found += new
    assert searcher.is_over
    return found


def test_seeds_depend_on_the_experiments_seed_alone_and_differ() -> None:
    assert repeat_seeds(7, 3) == repeat_seeds(7, 50)[:3]
    assert repeat_seeds(7, 3) != repeat_seeds(8, 3)
    many = repeat_seeds(7, 1000)
    assert len(set(many)) == 1000
    assert all(0 <= seed < 2**31 for seed in many)


@pytest.mark.parametrize("name", ["single", "grid"])
def test_each_configuration_is_trained_with_each_seed(name: str) -> None:
    created = _created(name, repeat=4)
    by_values: dict[str, list[int]] = {}
    for action in created:
        by_values.setdefault(json.dumps(action.hparams), []).append(action.trial_seed)
    assert len(by_values) == {"single": 1, "grid": 6}[name]
    assert list(by_values.values()) == [repeat_seeds(7, 4)] * len(by_values)
    assert len({action.request_id for action in created}) == len(created)
    assert created[-1].reason.endswith("seed 4 of 4")


def test_all_configurations_get_the_first_seed_before_any_gets_the_next() -> None:
    seeds = [action.trial_seed for action in _created("grid", repeat=2)]
    first, second = repeat_seeds(7, 2)
    assert seeds == [first] * 6 + [second] * 6


@pytest.mark.parametrize("name", ["single", "grid"])
def test_values_are_those_without_repeat_and_one_changes_nothing(name: str) -> None:
    plain = _created(name)
    assert _created(name, repeat=1) == plain
    assert [a.hparams for a in _created(name, repeat=3)][: len(plain)] == [a.hparams for a in plain]


def test_a_search_continues_from_any_snapshot_and_counts_its_progress() -> None:
    section: dict[str, Any] = {"name": "grid", "metric": "loss", "max_concurrent_trials": 2}
    searcher = Searcher(section, _SPACE, 3, repeat=3)
    records: list[Any] = []
    waiting: list[Any] = [e.InitialTrials()]
    decisions = []
    while waiting:
        step = searcher.handle(waiting.pop(0))
        records.append(load(dump(step.record)))
        decisions.append(dump([e.to_json(action) for action in step.actions]))
        waiting += [e.TrialExited(a.request_id) for a in step.actions if isinstance(a, e.Create)]
        restored = Searcher.restore(section, _SPACE, 3, load(dump(searcher.snapshot())), repeat=3)
        assert dump(restored.snapshot()) == dump(searcher.snapshot())
        assert restored.progress() == searcher.progress()
    again = Searcher(section, _SPACE, 3, repeat=3)
    assert [dump([e.to_json(a) for a in again.replay(r).actions]) for r in records] == decisions


def random(**changes: Any) -> dict[str, Any]:
    return {"name": "random", "metric": "loss", "max_trials": 5, **changes}


def test_single_is_one_trial_and_says_what_it_drew_from() -> None:
    search = Script({"name": "single", "metric": "loss"})
    assert search.start() == ["create T1"]
    assert "lr, n" in search.reasons[0]
    search.handle(e.Progress(search.rid(1), 0.25))
    assert search.searcher.progress() == 0.25
    assert search.exit(1) == ["shutdown"]
    assert search.searcher.progress() == 1.0


def test_random_replaces_trials_with_invalid_hyperparameters() -> None:
    search = Script(random(max_concurrent_trials=2))
    assert search.start() == ["create T1", "create T2"]
    assert search.exit(1) == ["create T3"]
    assert search.early(2, e.INVALID_HP) == ["create T4"]
    assert search.exit(3) == ["create T5"]
    assert search.exit(4) == ["create T6"]
    assert search.exit(5) == []
    assert search.exit(6) == ["shutdown"]


def test_random_without_a_limit_starts_all_and_does_not_replace_failures() -> None:
    search = Script(random(max_concurrent_trials=0))
    assert len(search.start()) == 5
    assert search.early(1) == []
    assert search.early(2, e.USER_CANCELED) == []


def test_random_progress_is_the_mean_over_valid_trials() -> None:
    search = Script(random(max_concurrent_trials=2))
    search.start()
    search.handle(e.Progress(search.rid(1), 0.5))
    assert search.searcher.progress() == 0.25
    search.exit(1)
    assert search.searcher.progress() == pytest.approx(1 / 3)
    search.early(2, e.INVALID_HP)
    assert search.searcher.progress() == pytest.approx(1 / 3)


def test_grid_goes_through_its_points_from_the_end() -> None:
    space = {
        "a": {"type": "int", "minval": 0, "maxval": 10, "count": 4},
        "b": {"type": "categorical", "vals": ["x", "y"]},
    }
    grid = {"name": "grid", "metric": "loss", "max_concurrent_trials": 2}
    search = Script(grid, space)
    assert search.start() == ["create T1", "create T2"]
    for trial in range(1, 9):
        search.exit(trial)
    points = [(c.hparams["a"], c.hparams["b"]) for c in search.created]
    assert points == [(a, b) for a in (10, 7, 3, 0) for b in ("y", "x")]
    assert search.searcher.is_over


def test_grid_does_not_replace_early_exits() -> None:
    space = {"a": {"type": "categorical", "vals": [1, 2]}}
    search = Script({"name": "grid", "metric": "loss"}, space)
    search.start()
    assert search.early(1, e.INVALID_HP) == []
    assert search.exit(2) == ["shutdown"]
