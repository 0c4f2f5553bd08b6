"""The results that a model may learn from: by training length, best and newest first."""

from __future__ import annotations

from bisect import bisect_left, insort

WORST = 1.7976931348623157e308  # the value of a trial that failed at a rung
ENOUGH = 12  # results at one length before a model is asked
MOST_BEST, MOST_NEWEST = 24, 40  # if there are more, a model sees these


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

    def highest(self) -> tuple[int, Level] | None:
        """Return the longest training length with enough results to learn from."""
        enough = [units for units, level in self._levels.items() if len(level) >= ENOUGH]
        return (max(enough), self._levels[max(enough)]) if enough else None
