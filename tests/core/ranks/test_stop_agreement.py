from __future__ import annotations

import random
import threading
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from determined.core._distributed import DistributedContext
from determined.core.ranks.stop_agreement import FinishLine
from determined.errors import DistributedError
from tests.support.workers import run_threads

LENGTH = 400
DEADLINE_SECONDS = 30


def line_of(context: DistributedContext) -> FinishLine:
    assert context._finish_line is not None
    return context._finish_line


def count_up(line: FinishLine, start: int, wish: int | None, speed: random.Random) -> int:
    """Count until the line, or to the end; from `wish` on this rank wants to stop."""
    line.begin(start, start + 2)
    for count in range(start + 1, LENGTH + 1):
        if speed.random() < 0.02:
            time.sleep(speed.random() * 0.002)
        line.position = count
        if wish is not None and count >= wish:
            line.propose()
        if line.is_proposed and line.is_reached(count):
            return count
    return LENGTH


@settings(max_examples=30, deadline=None)
@given(
    wishes=st.lists(st.none() | st.integers(1, LENGTH), min_size=3, max_size=3),
    seed=st.integers(0, 1000),
    fast=st.integers(0, 3),
)
def test_all_ranks_stop_at_one_count_however_far_apart(
    wishes: list[int | None], seed: int, fast: int
) -> None:
    def work(context: DistributedContext) -> list[int]:
        ends = []
        for start in (0, 100):  # the second agreement follows the first
            if context.rank != fast:
                time.sleep(0.001)
            wish, speed = wishes[context.rank], random.Random(seed + context.rank)
            ends.append(count_up(line_of(context), start, wish, speed))
            context.allgather("whether to stop")
            line_of(context).renew()
        return ends

    ends = run_threads((1, 3), work)
    assert ends == [ends[0]] * 3
    earliest = min((wish for wish in wishes if wish is not None), default=LENGTH)
    for start, end in zip((0, 100), ends[0], strict=True):
        assert min(max(earliest, start + 1), LENGTH) <= end <= LENGTH


def test_ranks_in_step_stop_where_the_first_one_wants_it() -> None:
    def work(context: DistributedContext) -> int:
        line = line_of(context)
        line.begin(0, 2)
        for count in range(1, 100):
            context.allgather("as an averaged gradient does")
            line.position = count
            if context.rank == 1 and count >= 10:
                line.propose()
            if line.is_proposed and line.is_reached(count):
                return count
        return 100

    (end,) = set(run_threads((1, 2), work))
    assert 10 <= end <= 11


def test_it_is_found_while_a_rank_waits_for_anothers_next_count() -> None:
    next_count = threading.Event()

    def work(context: DistributedContext) -> int:
        line = line_of(context)
        line.begin(0, 2)
        for count in range(1, 10):
            if context.rank == 0 and count == 1:
                assert next_count.wait(DEADLINE_SECONDS)  # as in a collective of the user
            if context.rank == 1 and count == 2:
                next_count.set()
            line.position = count
            if context.rank == 1:
                line.propose()
            if line.is_proposed and line.is_reached(count):
                return count
        return 10

    assert run_threads((1, 2), work) == [2, 2]


def test_one_that_nobody_wants_any_more_is_passed() -> None:
    def work(context: DistributedContext) -> int:
        line = line_of(context)
        line.begin(0, 0)
        line.position = 1
        if context.rank == 1:
            line.propose()
            assert line.is_reached(line._line[1] + 2)
        context.allgather("it was withdrawn")
        line.renew()
        return int(line.is_proposed)

    assert run_threads((1, 2), work) == [0, 0]


def _has_left(context: DistributedContext, rank: int) -> bool:
    assert context._group is not None
    return rank in context._group._left


@pytest.mark.parametrize("leaver", [0, 1])
def test_a_rank_that_left_is_named(leaver: int) -> None:
    def work(context: DistributedContext) -> str:
        line = line_of(context)
        if context.rank == leaver:
            context.close()
            return ""
        while not _has_left(context, leaver):  # before that its thread would still answer
            time.sleep(0.001)
        line.begin(0, 0)
        line.propose()
        with pytest.raises(DistributedError) as caught:
            line.is_reached(1)
        return str(caught.value)

    texts: list[Any] = run_threads((1, 2), work)
    assert f"rank {leaver} has closed its distributed context" in texts[1 - leaver]
