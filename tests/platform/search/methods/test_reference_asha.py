"""The same decisions as an ASHA written anew from its definition, on equal samples and results."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from determined.platform.search import events as e
from determined.platform.search.searcher import Searcher
from tests.platform.search.scripted import SPACE, halving


class PlainAsha:
    """Stopping ASHA in the form of a scheduler: rungs from the top down, cut at a quantile.

    At a milestone the trial's result joins the others there; it goes on if fewer than
    max(1, floor(n / divisor)) of them are better.
    """

    def __init__(self, milestones: list[int], divisor: float) -> None:
        self.divisor = divisor
        self.recorded: dict[int, dict[str, float]] = {m: {} for m in milestones}

    def result(self, trial: str, time: int, loss: float) -> bool:
        """Return whether the trial goes on."""
        for milestone in sorted(self.recorded):
            results = self.recorded[milestone]
            if time < milestone or trial in results:
                continue
            better = sum(other < loss for other in results.values())
            results[trial] = loss
            if milestone == max(self.recorded):
                return False
            if better >= max(1, len(results) // self.divisor):
                return False
        return True


@given(
    seed=st.integers(0, 10**6),
    divisor=st.integers(2, 5),
    num_rungs=st.integers(1, 4),
    concurrent=st.integers(1, 9),
    digits=st.integers(1, 9),
)
def test_decisions_equal_those_of_an_independent_asha(
    seed: int, divisor: int, num_rungs: int, concurrent: int, digits: int
) -> None:
    config: dict[str, Any] = halving(
        max_trials=60, divisor=divisor, num_rungs=num_rungs, max_concurrent_trials=concurrent
    ) | {"max_time": 81}
    searcher = Searcher(config, SPACE, seed)
    milestones = [max(1, 81 // divisor**k) for k in reversed(range(num_rungs))]
    reference = PlainAsha(milestones, divisor)
    chance = random.Random(seed)
    epochs: dict[str, int] = {}

    def handle(event: e.Event) -> list[e.Action]:
        actions = searcher.handle(event).actions
        epochs.update({a.request_id: 0 for a in actions if isinstance(a, e.Create)})
        return actions

    handle(e.InitialTrials())
    decided = 0
    while not searcher.is_over:
        trial = chance.choice(sorted(epochs))
        epochs[trial] += chance.choice((1, 1, 3, 10))
        loss = round(chance.random(), digits)  # few digits: many ties
        metrics = {"loss": loss, "epochs": epochs[trial]}
        actions = handle(e.ValidationCompleted(trial, metrics, 0))
        stopped = any(isinstance(a, e.Stop) for a in actions)
        assert stopped is not reference.result(trial, epochs[trial], loss)
        decided += 1
        if stopped:
            del epochs[trial]
            handle(e.TrialExited(trial))
    assert decided >= 60
