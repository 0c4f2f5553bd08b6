"""The results that a model may learn from: by training length, best and newest first."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from statistics import fmean, pstdev

from determined.platform.search.sampling.randomness import between

WORST = 1.7976931348623157e308  # the value of a trial that failed at a rung
ENOUGH = 12  # results at one length before a model is asked
MOST_BEST, MOST_NEWEST = 24, 40  # if there are more, a model sees these
FEWEST_SCORED, MOST_SCORED = 8, 128  # results that the model of `auto` sees
_FARTHEST = 1e9  # a result farther from the best counts as this far


class Level:
    """All results at one training length."""

    __slots__ = ("by_number", "by_value")

    def __init__(self) -> None:
        self.by_value: list[tuple[float, int]] = []
        self.by_number: list[tuple[int, float]] = []

    def __len__(self) -> int:
        """Return the number of real results; failures are kept, but do not count."""
        return bisect_left(self.by_value, (WORST, -1))

    def add(self, value: float, number: int) -> None:
        insort(self.by_value, (value, number))
        insort(self.by_number, (number, value))

    def remove(self, value: float, number: int) -> None:
        if self.has(number):
            del self.by_value[bisect_left(self.by_value, (value, number))]
            del self.by_number[bisect_left(self.by_number, (number, value))]

    def has(self, number: int) -> bool:
        place = bisect_left(self.by_number, (number, -WORST))
        return place < len(self.by_number) and self.by_number[place][0] == number

    def chosen(self) -> dict[int, float]:
        """Return the best and the newest results by trial number, up to a limit."""
        taken = {number: value for value, number in self.by_value[:MOST_BEST]}
        for number, value in reversed(self.by_number):
            if len(taken) == MOST_BEST + MOST_NEWEST:
                break
            taken.setdefault(number, value)
        return dict(sorted(taken.items()))

    def spread(self, most: int) -> list[tuple[float, int]]:
        """Return up to `most` results: the best, and as many spread over the ranks of the rest."""
        if len(self.by_value) <= most:
            return self.by_value
        rest, places = self.by_value[most // 2 :], most - most // 2
        spread = [rest[(2 * i + 1) * len(rest) // (2 * places)] for i in range(places)]
        return self.by_value[: most // 2] + spread


class Results:
    """Results of one search at all lengths."""

    def __init__(self, is_kept: bool = True) -> None:
        self._is_kept = is_kept  # without a model there is nothing to keep
        self._levels: dict[int, Level] = {}

    def add(self, units: int, value: float, number: int) -> None:
        if not self._is_kept:
            return
        level = self._levels.get(units)
        if level is None:
            level = self._levels[units] = Level()
        level.add(value, number)

    def remove(self, units: int, value: float, number: int) -> None:
        if units in self._levels:
            self._levels[units].remove(value, number)

    def scored(self, most: int) -> list[tuple[int, float, int]]:
        """Return up to `most` results of all lengths as (trial number, score, units).

        Scores have mean 0 and deviation 1; the longest lengths come first (see `scores`).
        """
        levels = sorted(self._levels.items(), reverse=True)
        chosen: list[tuple[int, float, int]] = []
        for i, (units, level) in enumerate(levels):
            room = (most - len(chosen)) // (len(levels) - i)
            chosen += [(number, value, units) for value, number in level.spread(room)]
        every = sorted(value for _, level in levels for value, _ in level.by_value[: len(level)])
        found = scores((value for _, value, _ in chosen), every)
        rows = zip(chosen, found, strict=True)
        return sorted((number, score, units) for (number, _, units), score in rows)

    def highest(self) -> tuple[int, Level] | None:
        """Return the longest training length with enough results to learn from."""
        enough = [units for units, level in self._levels.items() if len(level) >= ENOUGH]
        return (max(enough), self._levels[max(enough)]) if enough else None


def scores(values: Iterable[float], results: Sequence[float]) -> list[float]:
    """Return values on a scale that a model can learn from, given all results in ascending order.

    Good results keep their distances: ranks would blow up the tiny differences between neighbours
    of the best, and a model would look nowhere else. Results in the worst fifth count by the
    logarithm of their distance, so that those which diverge hide nothing; a failure counts as the
    worst result.
    """
    low, worst = (results[0], results[-1]) if results else (0.0, 0.0)
    high = _quantile(results, 0.8) if results else 0.0
    width = (high / 2 - low / 2) or (worst / 2 - low / 2) or 1.0  # halves cannot overflow

    def far(value: float) -> float:
        share = min((value / 2 - low / 2) / width, _FARTHEST)
        return share if share <= 1 else 1 + math.log(share) / 2

    found = [max(far(worst), 1.0) if value >= WORST else far(value) for value in values]
    middle, spread = (fmean(found), pstdev(found) or 1.0) if found else (0.0, 1.0)
    return [(score - middle) / spread for score in found]


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = int(place)
    return between(ordered[low], ordered[min(low + 1, len(ordered) - 1)], place - low)
