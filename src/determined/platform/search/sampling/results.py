"""The results that a model may learn from: by training length, best and newest first."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from statistics import NormalDist

WORST = 1.7976931348623157e308  # the value of a trial that failed at a rung
ENOUGH = 12  # results at one length before a model is asked
MOST_BEST, MOST_NEWEST = 24, 40  # if there are more, a model sees these
FEWEST_SCORED, MOST_SCORED = 3, 128  # results that the model of `auto` sees

_NORMAL = NormalDist()


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

        A score is the normal quantile of a rank among all results of all lengths: neither the
        metric's scale nor an outlier matters. The longest lengths come first.
        """
        levels = sorted(self._levels.items(), reverse=True)
        chosen: list[tuple[int, float, int]] = []
        for i, (units, level) in enumerate(levels):
            room = (most - len(chosen)) // (len(levels) - i)
            chosen += [(number, value, units) for value, number in level.spread(room)]
        scores = self._scores({value for _, value, _ in chosen})
        return sorted((number, scores[value], units) for number, value, units in chosen)

    def _scores(self, values: set[float]) -> dict[float, float]:
        columns = [[value for value, _ in level.by_value] for level in self._levels.values()]
        total = sum(len(column) for column in columns)
        scores = {}
        for value in values:
            twice = sum(bisect_left(c, value) + bisect_right(c, value) for c in columns)
            scores[value] = _NORMAL.inv_cdf(twice / 2 / total)
        return scores

    def highest(self) -> tuple[int, Level] | None:
        """Return the longest training length with enough results to learn from."""
        enough = [units for units, level in self._levels.items() if len(level) >= ENOUGH]
        return (max(enough), self._levels[max(enough)]) if enough else None
