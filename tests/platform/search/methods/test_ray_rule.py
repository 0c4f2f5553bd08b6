"""Where Ray Tune's ASHA decides otherwise on equal results: only at the ranks next to the cut."""

from __future__ import annotations

import numpy
from hypothesis import example, given
from hypothesis import strategies as st

from determined.platform.search import events as e
from determined.platform.search.searcher import Searcher
from tests.platform.search.scripted import SPACE, halving


def ray_goes_on(loss: float, earlier: list[float], divisor: int) -> bool:
    """Ray's rule: no worse than a percentile, interpolated, of the results before this one."""
    if not earlier:
        return True
    percent = (1 - 1 / divisor) * 100
    return bool(-loss >= numpy.nanpercentile([-other for other in earlier], percent))


def ours_goes_on(losses: list[float], divisor: int) -> list[bool]:
    """The decisions of a search at its first rung, for results that come one after the other."""
    config = halving(max_trials=len(losses), max_concurrent_trials=1, num_rungs=2)
    searcher = Searcher(config | {"divisor": divisor, "max_time": 8 * divisor}, SPACE, 1)
    actions = searcher.handle(e.InitialTrials()).actions
    decisions = []
    for loss in losses:
        (trial,) = (a.request_id for a in actions if isinstance(a, e.Create))
        metrics = {"loss": loss, "epochs": 8}
        actions = searcher.handle(e.ValidationCompleted(trial, metrics, 0)).actions
        decisions.append(any(isinstance(a, e.Continue) for a in actions))
        if decisions[-1]:
            metrics["epochs"] = 8 * divisor
            actions = searcher.handle(e.ValidationCompleted(trial, metrics, 0)).actions
    return decisions


@given(
    losses=st.lists(st.integers(0, 200) | st.integers(0, 5), min_size=1, max_size=60),
    divisor=st.integers(2, 8),
)
@example(losses=[3, 1, 2, 1, 3, 2, 1, 0, 0, 3], divisor=3)
def test_whoever_goes_on_here_goes_on_in_ray_and_only_the_next_ranks_differ(
    losses: list[float], divisor: int
) -> None:
    for i, ours in enumerate(ours_goes_on(losses, divisor)):
        earlier, count = losses[:i], i + 1
        better = sum(other < losses[i] for other in earlier)
        theirs = ray_goes_on(losses[i], earlier, divisor)
        keep = max(count // divisor, 1)
        if better < keep or better >= (count - 2) / divisor + 1:
            assert ours is theirs is (better < keep)
        else:  # the one or two ranks behind the cut, which Ray may let go on
            assert not ours
            assert keep <= better <= keep + 1


def test_ray_lets_one_more_go_on_when_its_percentile_falls_on_a_result() -> None:
    """Of five at a divisor of three, the percentile of the four before is the second of them."""
    losses = [1.0, 2.0, 3.0, 4.0, 1.5]
    assert ours_goes_on(losses, 3)[-1] is False  # rank 2, the best 1 continues
    assert ray_goes_on(1.5, losses[:-1], 3)
