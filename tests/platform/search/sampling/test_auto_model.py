"""The model of `sampler: auto`: ranges are kept, lengths are told apart, answers repeat exactly."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from determined.platform.search.sampling.auto_model import AutoModel, log_expected_improvement
from determined.platform.search.sampling.model import ProposalRequest
from determined.platform.search.sampling.randomness import Stream
from determined.platform.search.sampling.results import (
    FEWEST_SCORED,
    MOST_SCORED,
    WORST,
    Results,
    scores,
)
from determined.platform.search.space import Point, Space

SPACE: dict[str, Any] = {
    "huge": {"type": "double", "minval": -1.7e308, "maxval": 1.7e308},
    "kind": {"type": "categorical", "vals": ["a", "b", "c"]},
    "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
    "many": {"type": "int", "minval": -5, "maxval": 2**70},
    "few": {"type": "int", "minval": 3, "maxval": 4},
}
PLAIN = Space({"x": {"type": "double", "minval": 0, "maxval": 1}, "k": SPACE["kind"]})


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), observed=st.integers(1, 12), pending=st.integers(0, 4))
def test_proposals_are_within_ranges_and_repeat(seed: int, observed: int, pending: int) -> None:
    space, stream = Space(SPACE), Stream(seed)
    random = np.random.RandomState(seed)
    results = [
        (n, space.draw(stream), float(random.normal()), int(random.choice([0, 1, 4, 16])))
        for n in range(observed)
    ]
    running = [(100 + n, space.draw(stream)) for n in range(pending)]
    request = ProposalRequest(seed, 9, results, running)
    point = AutoModel(space).propose(request)
    for leaf, number in zip(space.searched, point, strict=True):
        if leaf.kind == "categorical":
            assert number in range(len(leaf.values))
        else:
            assert leaf.low <= number
            assert number <= leaf.high if leaf.kind == "int" else number < leaf.high
        assert isinstance(number, int if leaf.kind in ("int", "categorical") else float)
    over_json = ProposalRequest(**json.loads(json.dumps(vars_of(request))))
    assert json.dumps(AutoModel(space).propose(over_json)) == json.dumps(point)


def vars_of(request: ProposalRequest) -> dict[str, Any]:
    return {name: getattr(request, name) for name in request.__dataclass_fields__}


def test_short_trainings_that_mislead_are_overruled_by_long_ones() -> None:
    """After 1 epoch small values look good; after 16 epochs large ones are."""
    results: list[tuple[int, Point, float, int]] = []
    for number in range(24):
        x = (number + 0.5) / 24
        results.append((number, [number % 3, x], x - 0.5, 1))
        if number % 3 == 0:
            results.append((number, [number % 3, x], -x - 0.5, 16))
    proposed = [AutoModel(PLAIN).propose(ProposalRequest(s, 24, results, []))[1] for s in range(5)]
    assert min(proposed) > 0.7


def test_running_trials_are_not_proposed_again() -> None:
    results: list[tuple[int, Point, float, int]] = [
        (n, [0, n / 8], abs(n / 8 - 0.5), 4) for n in range(8)
    ]
    model, running = AutoModel(PLAIN), list[tuple[int, Point]]()
    for number in range(8, 14):
        point = model.propose(ProposalRequest(number, number, results, running))
        assert all(point[0] != p[0] or abs(point[1] - p[1]) > 1e-3 for _, p in running)
        running.append((number, point))


@pytest.mark.parametrize("z", [3.0, 0.5, -1.0, -4.9, -5.1, -30.0])
def test_expected_improvement(z: float) -> None:
    normal = NormalDist()
    (gain,) = log_expected_improvement(np.array([-2.0 * z]), np.array([2.0]), 0.0)
    if z > -10:
        expected = math.log(2.0 * (z * normal.cdf(z) + normal.pdf(z)))
        assert gain == pytest.approx(expected, abs=0.12)
    else:
        assert -math.inf < gain < -400


def test_scores_compare_all_lengths_and_failures_are_the_worst() -> None:
    results = Results()
    for number, value in enumerate([1e9, 5.0, -3.0]):
        results.add(1, value, number)
    results.add(4, 4.0, 2)
    results.add(4, WORST, 1)
    rows = {(number, units): score for number, score, units in results.scored(99)}
    assert rows[2, 1] < rows[2, 4] < rows[1, 1] < rows[0, 1] == rows[1, 4]


def test_scores_keep_the_distances_of_good_results() -> None:
    """Ten neighbours of the best are not spread over the scale, as their ranks would be."""
    results = sorted([*(1 + i / 1000 for i in range(10)), *(2.0 + i for i in range(10)), 1e6, 1e12])
    found = scores(results, results)
    assert found == sorted(found)
    assert found[9] - found[0] == pytest.approx(0.009 * (found[10] - found[0]), rel=1e-6)
    assert found[-1] - found[0] < 15 * (found[-3] - found[0])  # what diverges hides nothing


@given(
    st.lists(st.floats(-1.7e308, 1.7e308), max_size=30),
    st.integers(0, 3),
)
def test_scores_are_finite_ordered_and_standardized(results: list[float], failures: int) -> None:
    ordered = sorted(results)
    found = scores([*ordered, *[WORST] * failures], ordered)
    assert all(math.isfinite(score) for score in found)
    assert found == sorted(found)
    if len(set(found)) > 1:
        assert np.mean(found) == pytest.approx(0, abs=1e-6)
        assert np.std(found) == pytest.approx(1)
    small = [value / 1e9 for value in ordered]
    large = [8 * value for value in small]
    assert scores(large, large) == pytest.approx(scores(small, small), abs=1e-6)


def test_of_many_results_the_best_and_a_spread_of_the_rest_are_seen() -> None:
    results = Results()
    for number in range(5000):
        results.add(1, float(number * 7919 % 5000), number)
        if number % 50 == 0:
            results.add(4, float(number), number)
    rows = results.scored(MOST_SCORED)
    assert len(rows) == MOST_SCORED > FEWEST_SCORED
    found = sorted(score for _, score, units in rows if units == 1)
    assert found[0] == min(score for _, score, _ in rows)
    assert found[-1] > 1.5
    assert len([1 for _, _, units in rows if units == 4]) == MOST_SCORED // 2


_ASK = """
import json
import numpy as np
from determined.platform.search.sampling.auto_model import AutoModel
from determined.platform.search.sampling.model import ProposalRequest
from determined.platform.search.space import Point, Space

space = Space({f"x{i}": {"type": "double", "minval": 0, "maxval": 1} for i in range(6)})
random = np.random.RandomState(0)
results = [(n, random.uniform(size=6).tolist(), float(random.normal()), 4) for n in range(128)]
pending = [(n, point) for n, point, _, _ in results[:4]]
model = AutoModel(space)
print(json.dumps([model.propose(ProposalRequest(s, 1, results, pending)) for s in range(3)]))
"""


def test_the_number_of_threads_changes_nothing() -> None:
    answers = set()
    for threads in ("1", "2"):
        variables = {**os.environ, "OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
        done = subprocess.run(
            [sys.executable, "-c", _ASK], env=variables, capture_output=True, check=True
        )
        answers.add(done.stdout)
    assert len(answers) == 1
