from __future__ import annotations

import random
import threading
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from determined.core._distributed import DistributedContext
from determined.core.ranks.stop_agreement import StopAgreement
from determined.errors import DistributedError
from tests.support.workers import run_threads

LENGTH = 400
DEADLINE_SECONDS = 30


def agreement_of(context: DistributedContext) -> StopAgreement:
    assert context._stop_agreement is not None
    return context._stop_agreement


def count_up(agreement: StopAgreement, start: int, wish: int | None, speed: random.Random) -> int:
    """Count until all stop, or to the end; from `wish` on this rank wants to stop."""
    agreement.begin(start, start + 2)
    for count in range(start + 1, LENGTH + 1):
        if speed.random() < 0.02:
            time.sleep(speed.random() * 0.002)
        agreement.position = count
        if wish is not None and count >= wish:
            agreement.propose()
        if agreement.is_proposed and agreement.is_reached(count):
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
            ends.append(count_up(agreement_of(context), start, wish, speed))
            context.allgather("whether to stop")
            agreement_of(context).renew()
        return ends

    ends = run_threads((1, 3), work)
    assert ends == [ends[0]] * 3
    earliest = min((wish for wish in wishes if wish is not None), default=LENGTH)
    for start, end in zip((0, 100), ends[0], strict=True):
        assert min(max(earliest, start + 1), LENGTH) <= end <= LENGTH


def test_ranks_in_step_stop_where_the_first_one_wants_it() -> None:
    def work(context: DistributedContext) -> int:
        agreement = agreement_of(context)
        agreement.begin(0, 2)
        for count in range(1, 100):
            context.allgather("as an averaged gradient does")
            agreement.position = count
            if context.rank == 1 and count >= 10:
                agreement.propose()
            if agreement.is_proposed and agreement.is_reached(count):
                return count
        return 100

    (end,) = set(run_threads((1, 2), work))
    assert 10 <= end <= 11


def test_it_is_found_while_a_rank_waits_for_anothers_next_count() -> None:
    next_count = threading.Event()

    def work(context: DistributedContext) -> int:
        agreement = agreement_of(context)
        agreement.begin(0, 2)
        for count in range(1, 10):
            if context.rank == 0 and count == 1:
                assert next_count.wait(DEADLINE_SECONDS)  # as in a collective of the user
            if context.rank == 1 and count == 2:
                next_count.set()
            agreement.position = count
            if context.rank == 1:
                agreement.propose()
            if agreement.is_proposed and agreement.is_reached(count):
                return count
        return 10

    assert run_threads((1, 2), work) == [2, 2]


def test_one_that_nobody_wants_any_more_is_passed() -> None:
    def work(context: DistributedContext) -> int:
        agreement = agreement_of(context)
        agreement.begin(0, 0)
        agreement.position = 1
        if context.rank == 1:
            agreement.propose()
            assert agreement.is_reached(agreement._settled[1] + 2)
        context.allgather("it was withdrawn")
        agreement.renew()
        return int(agreement.is_proposed)

    assert run_threads((1, 2), work) == [0, 0]


def _has_left(context: DistributedContext, rank: int) -> bool:
    assert context._group is not None
    return rank in context._group._left


@pytest.mark.parametrize("leaver", [0, 1])
def test_a_rank_that_left_is_named(leaver: int) -> None:
    def work(context: DistributedContext) -> str:
        agreement = agreement_of(context)
        if context.rank == leaver:
            context.close()
            return ""
        while not _has_left(context, leaver):  # before that its thread would still answer
            time.sleep(0.001)
        agreement.begin(0, 0)
        agreement.propose()
        with pytest.raises(DistributedError) as caught:
            agreement.is_reached(1)
        return str(caught.value)

    texts: list[Any] = run_threads((1, 2), work)
    assert f"rank {leaver} has closed its distributed context" in texts[1 - leaver]
