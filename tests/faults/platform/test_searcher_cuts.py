"""A search that is cut at any of its events and restored decides as if it had not been."""

from __future__ import annotations

import random
from typing import Any

import pytest

from determined.platform.search import events as e
from determined.platform.search.canonical_json import dump, load
from determined.platform.search.methods.halving import Halving
from determined.platform.search.searcher import Searcher, Step
from determined.platform.search.simulation.curves import SyntheticCurves
from determined.platform.search.simulation.simulator import simulate
from tests.support import faults

SPACE = {"rate": {"type": "log", "base": 10, "minval": -4.0, "maxval": 0.0}}
SEARCH = {
    "name": "adaptive_asha",
    "metric": "loss",
    "max_trials": 64,
    "max_time": 27,
    "time_metric": "epochs",
    "divisor": 3,
    "max_concurrent_trials": 8,
}


def _played(seed: int) -> tuple[list[Step], Searcher]:
    searcher = Searcher(SEARCH, SPACE, seed)
    outcome = simulate(
        searcher, SyntheticCurves(seed), 8, validate_at=range(1, 28), keep_steps=True
    )
    assert outcome.is_over
    assert outcome.num_trials == 64
    return outcome.steps, searcher


def _rungs(searcher: Searcher) -> list[Any]:
    assert isinstance(searcher._method, Halving)
    return [[rung.values for rung in bracket.rungs] for bracket in searcher._method.brackets]


def _ranking(searcher: Searcher) -> list[int]:
    trials = sorted(searcher.state.trials, key=lambda trial: (trial.best or 9.0, trial.number))
    return [trial.number for trial in trials]


@pytest.mark.parametrize("seed", range(1 if faults.factor() == 1 else 5))
def test_a_search_cut_at_every_event_promotes_and_ranks_as_unbroken(seed: int) -> None:
    steps, unbroken = _played(seed)
    records = [load(dump(step.record)) for step in steps]
    draw = random.Random(seed)
    told = Searcher(SEARCH, SPACE, seed)  # goes along, to be saved wherever a snapshot was due
    saved: list[tuple[int, str | None]] = [(0, None)]
    for cut in range(len(steps) + 1):
        at, snapshot = draw.choice(saved)
        state = None if snapshot is None else load(snapshot)
        restored = Searcher.restore(SEARCH, SPACE, seed, state, records[at:cut])
        assert dump(restored.snapshot()) == dump(told.snapshot()), f"cut at event {cut}"
        if cut == len(steps):
            break
        # The next decision is made by the restored search, and all others follow from its state.
        made = restored.handle(e.event_from_json(records[cut]["event"]))
        assert made.actions == steps[cut].actions, f"cut at event {cut}"
        told = restored
        if cut % 20 == 0:
            saved.append((cut + 1, dump(told.snapshot())))
    assert _rungs(told) == _rungs(unbroken)
    assert _ranking(told) == _ranking(unbroken)
    print(f"seed {seed}: cut at each of {len(steps)} events")  # noqa: T201
