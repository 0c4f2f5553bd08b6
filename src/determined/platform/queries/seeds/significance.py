"""Whether two configurations differ by more than their seeds do. Pure.

A difference counts as real only if two tests agree: a t interval of the difference leaves out
zero, and an exchange of the two configurations seed by seed (or of all results, if no seeds are
shared) rarely gives a difference as large. The second assumes nothing about the distribution; it
is left out where so few seeds could never pass it, and then the t interval decides alone.

Both use 0.7 of the error that the interval allows: the t interval is exact for normal results
only, and false wins should be at most 5 % for others as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

FEWEST = 3
"""Seeds below which nothing is said about a difference."""
CONFIDENCE = 0.95
WITHIN_NOISE = "the difference is within noise"
TOO_FEW = "too few seeds to tell"

_SHARE = 0.7
_MOST_EXACT = 1 << 14
_DRAWS = 19_999
_TIE = 1e-9  # sums of the same numbers in another order are not equal


@dataclass(frozen=True)
class Verdict:
    """The difference B - A of two configurations' means, and what can be said about it.

    Attributes:
        method: `paired` (a t interval of the differences on shared seeds), `welch`, or `none`.
        num_a: how many seeds of A were used; with `paired`, the shared ones.
        num_b: how many seeds of B were used.
        mean_a: the mean of A over these seeds; None without any.
        mean_b: the mean of B over these seeds.
        difference: `mean_b - mean_a`.
        low: lower end of the interval of the difference; None if there are too few seeds.
        high: its upper end.
        confidence: of this interval, after the correction for several comparisons.
        p_exchange: how often an exchange gives a difference as large; None where it is left out.
        winner: `a` or `b`; None if the difference is within noise, or there are too few seeds.
        sentence: the same in words.
    """

    method: str
    num_a: int
    num_b: int
    mean_a: float | None
    mean_b: float | None
    difference: float | None
    low: float | None
    high: float | None
    confidence: float
    p_exchange: float | None
    winner: str | None
    sentence: str


def compare_seeds(
    a: Mapping[int, float],
    b: Mapping[int, float],
    *,
    smaller_is_better: bool = True,
    names: tuple[str, str] = ("A", "B"),
    confidence: float = CONFIDENCE,
    comparisons: int = 1,
) -> Verdict:
    """Compare the results of two configurations, by seed; all results must be finite.

    Args:
        a: the results of the first one.
        b: the results of the second one.
        smaller_is_better: whether a smaller result wins.
        names: what the sentence calls them.
        confidence: that of the interval if there is one comparison.
        comparisons: how many are made at the same time; the error is shared among them.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"`confidence` must be between 0 and 1, got {confidence!r}.")
    error = (1 - confidence) / max(comparisons, 1)
    shared = sorted(set(a) & set(b))
    is_paired = len(shared) >= FEWEST and 2 * len(shared) >= min(len(a), len(b))
    if is_paired:
        first, second = [a[seed] for seed in shared], [b[seed] for seed in shared]
    else:
        first, second = [a[seed] for seed in sorted(a)], [b[seed] for seed in sorted(b)]
    numbers = len(first), len(second)
    means = _mean(first), _mean(second)
    difference = None if means[0] is None or means[1] is None else means[1] - means[0]
    if min(numbers) < FEWEST or difference is None:
        counted = f"{names[0]} has {numbers[0]}, {names[1]} has {numbers[1]}"
        words = f"{TOO_FEW}: {counted}, and at least {FEWEST} of each are needed."
        return Verdict(
            "none", *numbers, *means, difference, None, None, 1 - error, None, None, words
        )
    if is_paired:
        deviation, freedom = _paired(first, second)
        differences = [y - x for x, y in zip(first, second, strict=True)]
        p_exchange = _sign_flips(differences, _SHARE * error)
    else:
        deviation, freedom = _welch(first, second)
        p_exchange = _exchanges(first, second, _SHARE * error)
    half = deviation * t_quantile(1 - error / 2, freedom)
    low, high = difference - half, difference + half
    is_outside = abs(difference) > deviation * t_quantile(1 - _SHARE * error / 2, freedom)
    # Without any spread the interval says nothing, and the exchange decides alone.
    is_rare = half > 0 if p_exchange is None else p_exchange <= _SHARE * error
    winner = None
    if is_outside and is_rare:
        winner = "b" if (difference < 0) == smaller_is_better else "a"
    seeds = f"{numbers[0]} shared seeds" if is_paired else f"{numbers[0]} and {numbers[1]} seeds"
    interval = f"{difference:+.4g}, {100 * (1 - error):.4g} % interval {low:.4g} to {high:.4g}"
    if winner is None:
        why = ""
        if half == 0 and is_outside:
            why = "; so few seeds with the same difference may be chance"
        elif is_outside and p_exchange is not None:
            why = f"; an exchange of their seeds gives one as large in {p_exchange:.1%} of cases"
        elif not low <= 0 <= high:
            why = "; zero is too close to the interval to be sure"
        words = f"{WITHIN_NOISE} ({seeds}: {interval}){why}."
    else:
        better, other = names if winner == "a" else names[::-1]
        words = f"{better} is better than {other}, beyond noise ({seeds}: {interval})."
    return Verdict(
        "paired" if is_paired else "welch",
        *numbers,
        *means,
        difference,
        low,
        high,
        1 - error,
        p_exchange,
        winner,
        words,
    )


def spread_of(values: Sequence[float]) -> float | None:
    """The standard deviation of a sample; None for fewer than two values."""
    if len(values) < 2:
        return None
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _paired(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """The standard error of the mean difference, and its degrees of freedom."""
    differences = [y - x for x, y in zip(a, b, strict=True)]
    deviation = spread_of(differences) or 0.0
    if deviation <= _TIE * max(abs(value) for value in differences):  # equal but for rounding
        deviation = 0.0
    return deviation / math.sqrt(len(a)), len(a) - 1


def _welch(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """The same of the difference of two means with different spreads."""
    parts = [(spread_of(values) or 0.0) ** 2 / len(values) for values in (a, b)]
    deviation = math.sqrt(math.fsum(parts))
    if deviation <= _TIE * max(abs(value) for value in (*a, *b)):
        return 0.0, len(a) + len(b) - 2
    shares = [part / deviation / deviation for part in parts]  # squares of small ones vanish
    freedom = 1 / sum(
        share**2 / (len(values) - 1) for share, values in zip(shares, (a, b), strict=True)
    )
    return deviation, freedom


def _sign_flips(differences: Sequence[float], error: float) -> float | None:
    """How often random signs give a sum as large; None if even the rarest is not rare enough."""
    import numpy as np

    values = np.asarray(differences, float)
    count = len(values)
    if 2.0 ** (1 - count) > error:
        return None
    if count <= 14:
        codes = np.arange(1 << count)[:, None] >> np.arange(count) & 1
        sums = np.abs((1 - 2 * codes) @ values)
        return float(np.mean(sums >= abs(values.sum()) * (1 - _TIE)))
    draw = np.random.default_rng(count)
    signs = 1 - 2 * draw.integers(0, 2, (_DRAWS, count), dtype=np.int8)
    sums = np.abs(signs @ values)
    return float((1 + np.sum(sums >= abs(values.sum()) * (1 - _TIE))) / (1 + _DRAWS))


def _exchanges(a: Sequence[float], b: Sequence[float], error: float) -> float | None:
    """How often a random division of all results gives a difference of means as large."""
    import itertools

    import numpy as np

    values, size = np.asarray([*a, *b], float), len(a)
    values = values - values.mean()
    divisions = math.comb(len(values), size)
    rarest = (2 if len(a) == len(b) else 1) / divisions
    if rarest > error:
        return None
    if divisions <= _MOST_EXACT:
        chosen = np.array(list(itertools.combinations(range(len(values)), size)))
        sums = values[chosen].sum(axis=1)
    else:
        draw = np.random.default_rng(len(values))
        ranks = draw.random((_DRAWS, len(values)))
        chosen = np.argpartition(ranks, size - 1, axis=1)[:, :size]
        sums = values[chosen].sum(axis=1)
    # The sum of all is zero, so the difference of means is proportional to the sum of one part.
    seen = abs(values[:size].sum())
    as_large = int(np.sum(np.abs(sums) >= seen * (1 - _TIE)))
    if divisions <= _MOST_EXACT:
        return as_large / divisions
    return (1 + as_large) / (1 + _DRAWS)


def t_quantile(probability: float, freedom: float) -> float:
    """Return the quantile of Student's t distribution; `freedom` need not be whole."""
    if not 0 < probability < 1 or not freedom > 0:
        raise ValueError(
            f"expected a probability between 0 and 1 and degrees of freedom above 0, "
            f"got {probability!r} and {freedom!r}."
        )
    if probability < 0.5:
        return -t_quantile(1 - probability, freedom)
    low, high = 0.0, 1.0
    while _t_tail(high, freedom) > 1 - probability:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if _t_tail(middle, freedom) > 1 - probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _t_tail(t: float, freedom: float) -> float:
    """The probability of a value above `t`, which must not be negative."""
    square = t * t
    return 0.5 * _beta(square / (freedom + square), freedom / (freedom + square), 0.5, freedom / 2)


def _beta(x: float, rest: float, a: float, b: float) -> float:
    """1 - I_x(a, b), the regularized incomplete beta function, with `rest` = 1 - x."""
    if x <= 0:
        return 1.0
    if rest <= 0:
        return 0.0
    log_front = a * math.log(x) + b * math.log(rest)
    log_front += math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(log_front)
    if x < (a + 1) / (a + b + 2):
        return 1 - front * _fraction(x, a, b) / a
    return front * _fraction(rest, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    tiny = 1e-300
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d or tiny)
    result = d
    for m in range(1, 10_000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / ((1 + term * d) or tiny)
            c = (1 + term / c) or tiny
            result *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return result
