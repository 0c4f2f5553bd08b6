"""A search that is killed again and again ends as its own record says."""

from __future__ import annotations

import random

import pytest

from tests.faults.platform.random_kills import RandomKills
from tests.faults.platform.soak import check_table, kill_at_random, settings
from tests.faults.platform.steady import check_only_the_supervisor_lives
from tests.support import faults
from tests.support.lab import Lab

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(600)]

TRIALS, KILLS = (6, 8) if faults.factor() == 1 else (12, 12 * faults.factor())
SECONDS = 0.1 if faults.factor() == 1 else 0.5  # of an epoch: there must be time for all kills


def test_a_search_that_is_killed_at_random_ends_as_recorded(lab: Lab) -> None:
    killer = RandomKills(lab, random.Random(faults.draw_seed()))
    experiment_id = lab.create(**settings(TRIALS, epochs=9, seconds=SECONDS))
    kill_at_random(lab, experiment_id, killer, KILLS, (0.1, 0.6))
    print(killer.killed)  # noqa: T201  # which the long form is run for
    assert killer.count >= 0.9 * KILLS  # it may end before the last
    check_table(lab, experiment_id)
    check_only_the_supervisor_lives(lab)
