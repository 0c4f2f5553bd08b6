"""Collectives of the trial's own code on some ranks only: ours must not stand in their way."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
import torch

from determined.pytorch import Batch, PyTorchCallback
from tests.support.ranked import NetTrial, fit
from tests.support.workers import run_workers

pytestmark = pytest.mark.multiprocess

LENGTH = 150  # more than a stop may take to be seen


class _Pictures(PyTorchCallback):
    def __init__(self, trial: AloneTrial) -> None:
        self._trial = trial

    def on_training_batch_end(
        self, epoch_idx: int, batch_idx: int, metrics: dict[str, Any]
    ) -> None:
        if self._trial.where == "callback":
            self._trial.draw(batch_idx)


class AloneTrial(NetTrial):
    """The chief alone uses the distributed model now and then, as for sample pictures.

    DDP may wait there for the other rank's next forward pass, so nothing of ours may keep that rank
    from it.
    """

    where = "train_batch"
    rank_that_stops = -1
    stops_at = 12
    number = 0

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        return {**super().build_callbacks(), "pictures": _Pictures(self)}

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        if self.context.distributed.rank == self.rank_that_stops and batch_idx == self.stops_at:
            if self.number:
                os.kill(os.getpid(), self.number)
            else:
                self.context.set_stop_requested(True)
        metrics = super().train_batch(batch, epoch_idx, batch_idx)
        if self.where == "train_batch":
            self.draw(batch_idx)
        return metrics

    def draw(self, batch_idx: int) -> None:
        if self.context.distributed.rank == 0 and batch_idx % 10 == 0:
            self.model(torch.zeros(1, 4))


def _train_on_rank(
    where: str, rank_that_stops: int, stops_at: int, stop: str, aggregation: int = 1
) -> tuple[int, str]:
    """Return the number of batches trained, and the last weights."""
    attributes = {
        "where": where,
        "rank_that_stops": rank_that_stops,
        "stops_at": stops_at,
        "number": signal.SIGTERM if stop == "SIGTERM" else 0,
    }
    trials: list[AloneTrial] = []

    def build(context: Any) -> AloneTrial:
        trials.append(type("Chosen", (AloneTrial,), attributes)(context))
        return trials[0]

    code: object = 0
    try:
        options = {"hparams": {"global_batch_size": 8}, "aggregation_frequency": aggregation}
        fit(build, options, max_length=Batch(LENGTH))
    except SystemExit as end:
        code = end.code
    assert code == (143 if stop == "SIGTERM" else 0)
    return len(trials[0].digests), trials[0].digests[-1]


def train(
    where: str,
    rank_that_stops: int = -1,
    stops_at: int = 12,
    stop: str = "no",
    aggregation: int = 1,
) -> int:
    first, second = run_workers(
        2, _train_on_rank, where, rank_that_stops, stops_at, stop, aggregation, process_group=False
    )
    assert first == second  # as many batches, to the same weights
    return first[0]


@pytest.mark.parametrize("where", ["train_batch", "callback"])
def test_the_chief_may_use_the_model_alone(where: str) -> None:
    assert train(where) == LENGTH


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
