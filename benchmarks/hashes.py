"""What recording hashes of tensors costs training: with and without them, in turns.

    python -m benchmarks.hashes [--batches 1000] [--rounds 5]

Trains a model of 2 MB in this process with one thread, saving every 200 batches, once with
the hashes that forks, replays and comparisons need and once without. Prints the seconds of the
processor per batch, background threads included, and the median of the ratios of each round.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import torch

from determined import pytorch
from determined.pytorch import Batch
from determined.pytorch._checkpoint.saving import writing

_PERIOD = 200
_WITH, _WITHOUT = "with", "without"


class _Net(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        layers = [torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256)]
        self.model = context.wrap_model(torch.nn.Sequential(*layers))
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters()))

    def build_training_data_loader(self) -> pytorch.DataLoader:
        x = torch.randn(4096, 256, generator=torch.Generator().manual_seed(1))
        return pytorch.DataLoader(torch.utils.data.TensorDataset(x), batch_size=32, shuffle=True)

    def build_validation_data_loader(self) -> None:
        return None

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        loss = torch.nn.functional.mse_loss(self.model(batch[0]), batch[0])
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}


@contextlib.contextmanager
def _hashing(is_on: bool) -> Iterator[None]:
    kept: Any = writing.hash_states
    if not is_on:
        writing.hash_states = lambda *states: {}
    try:
        yield
    finally:
        writing.hash_states = kept


def _seconds_per_batch(batches: int, is_on: bool) -> float:
    with tempfile.TemporaryDirectory() as storage, _hashing(is_on):
        began = time.process_time()
        with pytorch.init(
            seed=1, checkpoint_storage=storage, enable_tensorboard_logging=False
        ) as context:
            pytorch.Trainer(_Net(context), context).fit(
                max_length=Batch(batches),
                checkpoint_period=Batch(_PERIOD),
                checkpoint_policy="none",
                progress=False,
            )
        return (time.process_time() - began) / batches


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    _seconds_per_batch(_PERIOD, True)  # whatever happens only once
    ratios = []
    for number in range(options.rounds):
        taken = {}
        for name in (_WITH, _WITHOUT) if number % 2 == 0 else (_WITHOUT, _WITH):
            taken[name] = _seconds_per_batch(options.batches, name == _WITH)
        ratios.append(taken[_WITH] / taken[_WITHOUT])
        shown = ", ".join(f"{name} {1e6 * taken[name]:.0f} us" for name in (_WITH, _WITHOUT))
        print(f"round {number}: {shown} of the processor per batch, ratio {ratios[-1]:.3f}")
    print(f"with / without: {statistics.median(ratios):.3f} (median of {options.rounds})")


if __name__ == "__main__":
    main()
