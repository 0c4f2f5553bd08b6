"""Proposals keep apart from what was tried."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from determined.platform.search.sampling.model import ProposalRequest
from determined.platform.search.sampling.proposals import Proposals, keep_apart
from determined.platform.search.sampling.results import FEWEST_SCORED
from determined.platform.search.space import Point, Space

SPACE = Space(
    {
        "kind": {"type": "categorical", "vals": ["a", "b", "c"]},
        "lr": {"type": "log", "base": 10, "minval": -4, "maxval": 0},
        "n": {"type": "int", "minval": 1, "maxval": 64},
    }
)
points = st.tuples(st.integers(0, 2), st.floats(-4, -0.001), st.integers(1, 64)).map(list)


def test_a_proposal_far_from_all_trials_stays_as_it_is() -> None:
    tried = [[0, -4.0, 60], [1, -1.0, 1]]
    assert keep_apart(SPACE, [0, -1.0, 1], [2, -2.0, 2], tried, 20) == [0, -1.0, 1]


def test_a_proposal_that_repeats_a_trial_takes_a_value_of_the_random_sample() -> None:
    proposed, drawn = [0, -1.0, 1], [2, -3.9, 60]
    assert keep_apart(SPACE, proposed, drawn, [proposed], 31) == [0, -3.9, 1]
    assert keep_apart(SPACE, proposed, drawn, [proposed], 32) == [0, -1.0, 60]
    assert keep_apart(SPACE, proposed, [2, -1.0, 60], [proposed], 31) == [0, -1.0, 60]
    assert keep_apart(SPACE, proposed, [2, -1.0, 1], [proposed], 31) == [2, -1.0, 1]


def test_the_more_trials_the_nearer_a_proposal_may_be() -> None:
    near: list[Any] = [0, -1.1, 1]
    tried = [[0, -1.0, 1]]
    assert keep_apart(SPACE, near, [0, -4.0, 1], tried, 40) != near
    assert keep_apart(SPACE, near, [0, -4.0, 1], tried, 4000) == near


def test_with_categories_alone_only_the_same_values_repeat_a_trial() -> None:
    space = Space({name: {"type": "categorical", "vals": [1, 2]} for name in "ab"})
    assert keep_apart(space, [0, 0], [1, 1], [[0, 1], [1, 0]], 3) == [0, 0]
    assert keep_apart(space, [0, 0], [1, 1], [[0, 0], [1, 0]], 2) == [1, 1]


@given(
    proposed=points, drawn=points, tried=st.lists(points, max_size=30), number=st.integers(0, 99)
)
def test_every_value_is_the_models_or_that_of_the_sample(
    proposed: list[float], drawn: list[float], tried: list[list[float]], number: int
) -> None:
    found = keep_apart(SPACE, proposed, drawn, tried, number)
    assert all(value in pair for value, *pair in zip(found, proposed, drawn, strict=True))
    if found not in (proposed, drawn):
        assert found not in tried


class Counting:
    """A model that always proposes the same, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[ProposalRequest] = []

    def propose(self, request: ProposalRequest) -> Point:
        self.asked.append(request)
        return [0, -1.0, 1]


def test_auto_draws_at_random_until_there_are_enough_results() -> None:
    model = Counting()
    proposals = Proposals("auto", SPACE, 1, "epochs", model)
    for number in range(40):
        drawn: Point = [1, -4 + number / 10, number + 1]
        choice = proposals.point(number, drawn, [])
        is_random = number < FEWEST_SCORED or number % 8 == 7  # one in eight stays random
        assert (choice.reason == "a random sample") == is_random
        assert (choice.point == drawn) == is_random
        proposals.results.add(4, float(number), number)
    assert [len(request.observed) for request in model.asked[:3]] == [8, 9, 10]
