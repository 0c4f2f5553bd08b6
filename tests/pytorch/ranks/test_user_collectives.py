"""Collectives of the trial's own code on some ranks only: ours must not stand in their way."""

from __future__ import annotations

import pytest

from tests.support import alone
from tests.support.workers import run_workers

pytestmark = pytest.mark.multiprocess


def train(
    where: str,
    rank_that_stops: int = -1,
    stops_at: int = 12,
    stop: str = "no",
    aggregation: int = 1,
) -> int:
    first, second = run_workers(
        2, alone.main, where, rank_that_stops, stops_at, stop, aggregation, process_group=False
    )
    assert first == second  # as many batches, to the same weights
    return first[0]


@pytest.mark.parametrize("where", ["train_batch", "callback"])
def test_the_chief_may_use_the_model_alone(where: str) -> None:
    assert train(where) == 500


@pytest.mark.parametrize("stop", ["request", "SIGTERM"])
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("where", ["train_batch", "callback"])
def test_it_may_so_when_a_rank_stops(where: str, rank: int, stop: str) -> None:
    assert 12 < train(where, rank, 12, stop) <= 112


@pytest.mark.parametrize("aggregation", [1, 3])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_in_the_first_batch_waits_for_ddp_to_settle(rank: int, aggregation: int) -> None:
    assert 2 * aggregation <= train("train_batch", rank, 0, "SIGTERM", aggregation) < 100


def test_a_signal_is_honoured_within_a_few_batches() -> None:
    assert 12 < train("train_batch", 1, 12, "SIGTERM") <= 15
