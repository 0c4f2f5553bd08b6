"""A trial that notes when each of its batches ended: in seconds, and of its own CPU time.

It trains until it is told to stop. Every batch is reported, and a line goes to the log with each
hundred, so that every stream of the dashboard has something to carry.
"""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import determined as det
from determined import pytorch

_FEATURES, _WIDTH, _BATCH_SIZE = 64, 512, 64
_REPORT_EVERY = 100


class FollowedTrial(pytorch.PyTorchTrial):
    """A small net on noise: a few milliseconds per batch on one core."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        layers = (nn.Linear(_FEATURES, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, _WIDTH), nn.ReLU())
        self.model = context.wrap_model(nn.Sequential(*layers, nn.Linear(_WIDTH, 10)))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.01))
        self.stamps = Path(context.get_hparam("stamps")).open("ab")  # noqa: SIM115  # as long as it trains
        inputs, labels = torch.randn(4096, _FEATURES), torch.randint(0, 10, (4096,))
        self.dataset = torch.utils.data.TensorDataset(inputs, labels)

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(self.dataset, batch_size=_BATCH_SIZE, shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(self.dataset, batch_size=1024)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        inputs, labels = batch
        loss = nn.functional.cross_entropy(self.model(inputs), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        self.stamps.write(struct.pack("<dd", time.monotonic(), time.process_time()))
        if batch_idx % _REPORT_EVERY == 0:
            self.stamps.flush()
            print(f"batch {batch_idx}", flush=True)  # for the stream of the log
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        inputs, labels = batch
        return {"validation_loss": nn.functional.cross_entropy(self.model(inputs), labels)}


def main() -> None:
    torch.set_num_threads(1)
    info = det.get_cluster_info()
    assert info is not None
    assert info.trial is not None
    with pytorch.init(hparams=info.trial.hparams, seed=1) as context:
        pytorch.Trainer(FollowedTrial(context), context).fit(
            max_length=pytorch.Batch(10**9), reporting_period=pytorch.Batch(_REPORT_EVERY)
        )


if __name__ == "__main__":
    main()
