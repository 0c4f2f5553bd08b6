from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined.dashboard.server.rate_limiter import BURST, LONGEST_SECONDS, PER_SECOND, Pace


@given(st.lists(st.floats(0, 0.5), max_size=400))
def test_what_waits_its_delay_never_comes_faster_than_allowed(gaps: list[float]) -> None:
    now, moments = 0.0, list[float]()
    pace = Pace(lambda: now)
    for gap in gaps:
        now += gap
        delay = pace.next_delay()
        assert 0 <= delay <= LONGEST_SECONDS
        if delay < LONGEST_SECONDS:
            moments.append(now + delay)
    assert moments == sorted(moments)
    for first, moment in enumerate(moments):
        later = len(moments) - first
        assert later <= BURST + (moments[-1] - moment) * PER_SECOND + 1 + 1e-6


def test_a_burst_waits_for_nothing_and_a_flood_for_longer_and_longer() -> None:
    pace = Pace(lambda: 0.0)
    delays = [pace.next_delay() for _ in range(BURST + 600)]
    assert delays[:BURST] == pytest.approx([0.0] * BURST)
    assert delays[BURST : BURST + 3] == pytest.approx([n / PER_SECOND for n in (1, 2, 3)])
    assert delays[-1] == pytest.approx(LONGEST_SECONDS)


def test_after_a_pause_there_is_a_burst_again() -> None:
    now = 0.0
    pace = Pace(lambda: now)
    while pace.next_delay() < 1.0:
        pass
    now += 1.0 + BURST / PER_SECOND
    assert pace.next_delay() == 0.0
