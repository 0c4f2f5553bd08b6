"""A trial in which the chief alone uses the distributed model now and then, as for sample pictures.

torch's DDP may wait there for the other rank's next forward pass, so nothing of ours may keep that
rank from it.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import torch

from determined.pytorch import Batch, PyTorchCallback
from tests.support.ranked import NetTrial, fit


class _Pictures(PyTorchCallback):
    def __init__(self, trial: AloneTrial) -> None:
        self._trial = trial

    def on_training_batch_end(
        self, epoch_idx: int, batch_idx: int, metrics: dict[str, Any]
    ) -> None:
        if self._trial.where == "callback":
            self._trial.draw(batch_idx)


class AloneTrial(NetTrial):
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


def main(
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
        fit(build, options, max_length=Batch(500))
    except SystemExit as end:
        code = end.code
    assert code == (143 if stop == "SIGTERM" else 0)
    return len(trials[0].digests), trials[0].digests[-1]
