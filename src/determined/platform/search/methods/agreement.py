"""How well a rung predicts the next one, measured by the trials that reached both."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from statistics import NormalDist, correlation, pstdev

_NORMAL = NormalDist()
_FEWEST, _MOST = 4, 64  # trials that are compared; the newest ones, if there are more
_TRUST = 6  # a rung is trusted until it is shown to mislead: as if so many trials had agreed
_GOOD = 0.7  # a rank correlation that calls for no change
_NARROWEST = 0.3


class Agreement:
    """Pairs of results of the same trials, at a rung and at the next one."""

    def __init__(self) -> None:
        self._pairs: list[tuple[int, float, float]] = []

    def add(self, number: int, here: float, above: float) -> None:
        if here != above:  # equal if one validation passed both rungs; it compares nothing
            insort(self._pairs, (number, here, above))

    def remove(self, number: int) -> None:
        self._pairs = [pair for pair in self._pairs if pair[0] != number]

    def share(self, divisor: float, values: Sequence[float]) -> float:
        """Return which share of a rung's results, given in ascending order, should continue.

        It is 1 / divisor if the rung predicts the next one, and grows to 1 if it does not.
        """
        pairs = self._pairs[-_MOST:]
        if len(pairs) < _FEWEST:
            return 1 / divisor
        trust = (len(pairs) * _rank_correlation(pairs, values) + _TRUST) / (len(pairs) + _TRUST)
        return float(divisor ** -min(max(trust / _GOOD, 0.0), 1.0))


def _rank_correlation(pairs: list[tuple[int, float, float]], values: Sequence[float]) -> float:
    """Return the correlation that all trials would show, had none of them been stopped.

    Only the best trials continue. Among these, results at the rung vary less than among all, which
    hides part of the correlation; their spread says how much (a correction for restricted range).
    """
    here, above = [pair[1] for pair in pairs], [pair[2] for pair in pairs]
    ranks_here, ranks_above = _ranks(here), _ranks(above)
    if len(set(ranks_here)) == 1 or len(set(ranks_above)) == 1:
        return 0.0
    found = correlation(ranks_here, ranks_above)
    scores = [_NORMAL.inv_cdf((bisect_left(values, x) + 0.5) / len(values)) for x in here]
    spread = min(max(pstdev(scores), _NARROWEST), 1.0)
    return found / float((spread**2 * (1 - found**2) + found**2) ** 0.5)


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(values)
    return [float(bisect_left(order, value)) for value in values]
