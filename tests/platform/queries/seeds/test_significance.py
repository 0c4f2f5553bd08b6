"""Whether a difference between configurations is real: quantiles, intervals, false wins."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from determined.platform.queries.seeds.significance import (
    TOO_FEW,
    WITHIN_NOISE,
    compare_seeds,
    spread_of,
    t_quantile,
)

Draw = Callable[[int], "np.ndarray[tuple[int], np.dtype[np.float64]]"]


@pytest.mark.parametrize(
    ("probability", "freedom", "known"),
    [  # from printed tables
        (0.975, 1, 12.706),
        (0.975, 2, 4.303),
        (0.975, 4, 2.776),
        (0.975, 9, 2.262),
        (0.975, 30, 2.042),
        (0.975, 120, 1.980),
        (0.95, 5, 2.015),
        (0.995, 3, 5.841),
        (0.9995, 10, 4.587),
        (0.75, 7, 0.711),
    ],
)
def test_quantiles_are_those_of_the_tables(
    probability: float, freedom: float, known: float
) -> None:
    assert t_quantile(probability, freedom) == pytest.approx(known, abs=6e-4)
    assert t_quantile(1 - probability, freedom) == pytest.approx(-known, abs=6e-4)


def test_quantiles_agree_with_closed_forms_and_the_normal_distribution() -> None:
    for probability in (0.5, 0.6, 0.9, 0.975, 0.9999):
        one = math.tan(math.pi * (probability - 0.5))
        assert t_quantile(probability, 1) == pytest.approx(one, rel=1e-9, abs=1e-12)
        a = 4 * probability * (1 - probability)
        two = 2 * (probability - 0.5) * math.sqrt(2 / a)
        assert t_quantile(probability, 2) == pytest.approx(two, rel=1e-9, abs=1e-12)
    assert t_quantile(0.975, 1e7) == pytest.approx(1.959964, abs=1e-5)
    with pytest.raises(ValueError, match="degrees of freedom above 0, got 0.5 and 0"):
        t_quantile(0.5, 0)


def test_quantiles_agree_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    for probability in (0.6, 0.95, 0.975, 0.9995, 0.99999):
        for freedom in (0.7, 1, 2.5, 4, 17, 333):
            known = stats.t.ppf(probability, freedom)
            assert t_quantile(probability, freedom) == pytest.approx(known, rel=1e-8)


def test_a_paired_interval_is_that_of_the_differences() -> None:
    a = {1: 1.0, 2: 5.0, 3: 9.0}
    b = {1: 2.0, 2: 6.5, 3: 9.5}
    found = compare_seeds(a, b)
    half = 4.302653 * 0.5 / math.sqrt(3)
    assert (found.method, found.num_a, found.num_b) == ("paired", 3, 3)
    assert found.difference == pytest.approx(1.0)
    assert found.low == pytest.approx(1 - half, rel=1e-6)
    assert found.high == pytest.approx(1 + half, rel=1e-6)
    assert found.winner is None
    assert found.sentence.startswith(f"{WITHIN_NOISE} (3 shared seeds: +1, 95 % interval")


def test_without_shared_seeds_the_interval_is_welchs() -> None:
    a = dict(enumerate([27.5, 21.0, 19.0, 23.6, 17.0, 17.9]))
    b = dict(enumerate([27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8], start=100))
    found = compare_seeds(a, b)
    assert (found.method, found.num_a, found.num_b) == ("welch", 6, 7)
    stats = pytest.importorskip("scipy.stats")
    known = stats.ttest_ind(list(b.values()), list(a.values()), equal_var=False)
    interval = known.confidence_interval(0.95)
    assert found.low == pytest.approx(interval.low, rel=1e-6)
    assert found.high == pytest.approx(interval.high, rel=1e-6)


def test_a_large_difference_is_named_in_both_directions() -> None:
    noise = [0.01, -0.02, 0.015, 0.0, -0.01]
    a = {seed: 0.5 + value for seed, value in enumerate(noise)}
    b = {seed: 0.3 - value for seed, value in enumerate(noise)}
    lower = compare_seeds(a, b, names=("old", "new"))
    assert lower.winner == "b"
    assert lower.sentence.startswith("new is better than old, beyond noise (5 shared seeds: -0.198")
    assert compare_seeds(a, b, smaller_is_better=False).winner == "a"
    assert compare_seeds(b, a).winner == "a"


def test_too_few_seeds_are_said_to_be_too_few() -> None:
    for a, b in (({}, {}), ({1: 1.0, 2: 1.1}, {1: 9.0, 2: 9.1}), ({1: 1.0}, {2: 2.0, 3: 3.0})):
        found = compare_seeds(a, b)
        assert (found.method, found.winner, found.low) == ("none", None, None)
        assert found.sentence.startswith(f"{TOO_FEW}: A has {len(a)}, B has {len(b)}")


def test_seeds_without_partner_are_left_out_unless_most_have_none() -> None:
    a = {1: 1.0, 2: 2.0, 3: 3.0, 4: 100.0}
    b = {1: 1.5, 2: 2.4, 3: 3.6}
    assert (compare_seeds(a, b).method, compare_seeds(a, b).num_a) == ("paired", 3)
    apart = {seed + 100: value for seed, value in b.items()}
    assert compare_seeds(a, {**apart, 1: 1.5}).method == "welch"


def test_results_that_do_not_spread_need_more_seeds_but_are_no_error() -> None:
    for count, winner in ((3, None), (5, None), (6, "b"), (40, "b")):
        a, b = dict.fromkeys(range(count), 0.7), dict.fromkeys(range(count), 0.6)
        assert compare_seeds(a, b).winner == winner
        assert compare_seeds(a, dict(a)).winner is None
    assert "may be chance" in compare_seeds({1: 1, 2: 1, 3: 1}, {1: 2, 2: 2, 3: 2}).sentence


def test_several_comparisons_share_the_error() -> None:
    rng = np.random.default_rng(3)
    a = dict(enumerate(rng.normal(0, 1, 8)))
    b = dict(enumerate(rng.normal(0, 1, 8)))
    one, many = compare_seeds(a, b), compare_seeds(a, b, comparisons=10)
    assert one.high is not None
    assert many.high is not None
    assert many.high > one.high
    assert many.confidence == pytest.approx(0.995)


def test_the_spread_is_the_standard_deviation_of_a_sample() -> None:
    assert spread_of([1.0]) is None
    assert spread_of([1.0, 2.0, 4.0]) == pytest.approx(np.std([1, 2, 4], ddof=1))


def _distributions(rng: np.random.Generator) -> dict[str, Draw]:
    return {
        "normal": lambda n: rng.normal(size=n),
        "uniform": lambda n: rng.random(n),
        "lognormal": lambda n: rng.lognormal(0, 1.5, n),
        "exponential": lambda n: rng.exponential(size=n),
        "heavy tails": lambda n: rng.standard_t(2, n),
        "one in ten diverges": lambda n: 5.0 * (rng.random(n) < 0.1) + 0.1 * rng.normal(size=n),
        "half of them fail": lambda n: (rng.random(n) < 0.5) + 0.01 * rng.normal(size=n),
        "two values": lambda n: rng.integers(0, 2, n).astype(float),
        "a small test set": lambda n: rng.binomial(50, 0.9, n) / 50,
        "near the best accuracy": lambda n: 1 - rng.beta(1, 8, n),
    }


def false_wins(name: str, num_a: int, num_b: int, shared: bool, rounds: int, seed: int) -> float:
    """The share of comparisons of equal configurations that find a winner."""
    rng = np.random.default_rng(seed)
    draw = _distributions(rng)[name]
    wins = 0
    for _ in range(rounds):
        of_seeds = draw(num_a) if shared else np.zeros(num_a)  # what a seed does to both
        a, b = draw(num_a) + of_seeds, draw(num_b) + (of_seeds if shared else 0.0)
        first = 0 if shared else num_a
        verdict = compare_seeds(
            dict(enumerate(map(float, a))), dict(enumerate(map(float, b), start=first))
        )
        wins += verdict.winner is not None
    return wins / rounds


@pytest.mark.slow
@pytest.mark.parametrize("name", _distributions(np.random.default_rng(0)))
def test_equal_configurations_win_in_at_most_five_percent(name: str) -> None:
    cases = [(3, 3, True), (5, 5, True), (8, 8, True), (3, 3, False), (5, 5, False), (4, 10, False)]
    shares = [
        false_wins(name, *case, rounds=1000, seed=number) for number, case in enumerate(cases)
    ]
    assert max(shares) <= 0.05, dict(zip(cases, shares, strict=True))


@pytest.mark.slow
def test_the_best_of_equal_configurations_rarely_wins() -> None:
    """Choosing the best first would find a winner in a third of these without a correction."""
    rng = np.random.default_rng(11)
    wins, rounds = 0, 500
    for _ in range(rounds):
        groups = [dict(enumerate(map(float, rng.normal(size=6)))) for _ in range(6)]
        best = min(groups, key=lambda group: sum(group.values()))
        others = [group for group in groups if group is not best]
        verdicts = [compare_seeds(best, other, comparisons=15) for other in others]
        wins += any(verdict.winner is not None for verdict in verdicts)
    assert wins / rounds <= 0.05


def test_a_real_difference_is_found() -> None:
    rng = np.random.default_rng(5)
    found = 0
    for _ in range(200):
        seeds = rng.normal(0, 5, 5)  # shared seeds cancel this
        a, b = seeds + rng.normal(0, 0.5, 5), seeds + 2 + rng.normal(0, 0.5, 5)
        verdict = compare_seeds(dict(enumerate(map(float, a))), dict(enumerate(map(float, b))))
        found += verdict.winner == "a"
    assert found >= 190
