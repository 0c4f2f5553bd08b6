"""A bounded rate of rejections, so that whoever floods the dashboard cannot occupy a core."""

from __future__ import annotations

import time
from collections.abc import Callable

PER_SECOND = 50.0
BURST = 100
LONGEST_SECONDS = 5.0


class Pace:
    """Delays that spread events out: a burst at once, and from then on so many a second."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._booked = clock()
        """When all events so far would have happened, had they come at the allowed rate."""

    def next_delay(self) -> float:
        """The seconds that the next event has to wait, which is thereby booked."""
        now = self._clock()
        booked = max(now, self._booked) + 1 / PER_SECOND
        self._booked = min(booked, now + BURST / PER_SECOND + LONGEST_SECONDS)
        return max(0.0, self._booked - now - BURST / PER_SECOND)
