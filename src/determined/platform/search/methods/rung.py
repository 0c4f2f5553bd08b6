"""One rung of successive halving: the results that reached it, and the trials paused there."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any

Waiting = list[tuple[float, int]]


class Rung:
    """Results in ascending order (smaller is better), found and inserted by bisection.

    `waiting` are paused trials that may be promoted; `left` are those that ended here and may be
    promoted only after limits are raised. Both hold (result, trial number), best first. `heading`
    counts the running trials on their way to this rung.
    """

    __slots__ = ("heading", "left", "units", "values", "waiting")

    def __init__(self, units: int) -> None:
        self.units = units
        self.values: list[float] = []
        self.waiting: Waiting = []
        self.left: Waiting = []
        self.heading = 0

    def enter(self, value: float) -> int:
        """Insert a result before equal ones and return its rank, 0 for the best."""
        place = self.place(value)
        self.values.insert(place, value)
        return place

    def place(self, value: float) -> int:
        return bisect_left(self.values, value)

    def remove(self, value: float) -> None:
        _take_out(self.values, value)

    def wait(self, value: float, number: int) -> None:
        insort(self.waiting, (value, number))

    def leave(self, value: float, number: int) -> None:
        insort(self.left, (value, number))

    def forget(self, value: float, number: int) -> None:
        """Remove a trial from either list, if it is on one."""
        _take_out(self.waiting, (value, number))
        _take_out(self.left, (value, number))

    def reopen(self) -> None:
        """Allow trials that ended here to be promoted."""
        self.waiting = sorted(self.waiting + self.left)
        self.left = []

    def to_json(self) -> list[Any]:
        waiting, left = ([list(entry) for entry in part] for part in (self.waiting, self.left))
        return [self.units, list(self.values), waiting, left, self.heading]

    @classmethod
    def from_json(cls, row: list[Any]) -> Rung:
        rung = cls(row[0])
        rung.values = list(row[1])
        rung.waiting = [(value, number) for value, number in row[2]]
        rung.left = [(value, number) for value, number in row[3]]
        rung.heading = row[4]
        return rung


def _take_out(entries: list[Any], entry: Any) -> None:
    place = bisect_left(entries, entry)
    if place < len(entries) and entries[place] == entry:
        del entries[place]


def rung_units(num_rungs: int, divisor: float, max_time: int) -> list[int]:
    """Return the training length at each rung, ascending."""
    return [max(int(max_time / divisor ** (num_rungs - 1 - i)), 1) for i in range(num_rungs)]
