"""What a batch costs on two ranks: torch's DDP by hand against `Trainer.fit`, taken in turns.

    OMP_NUM_THREADS=1 python -m benchmarks.two_ranks [--batches 300] [--rounds 7]

Both train the same model on the same data over gloo, from the first batch on alternately, so that
the machine's moods hit both. Prints the median time of a batch of each, and the median of the
ratios fit / DDP.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from determined import pytorch

BATCH_SIZE = 64
RECORDS = 64 * 1024


def build_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )


def build_data() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(RECORDS, 128, generator=generator)
    return TensorDataset(inputs, torch.randint(10, (RECORDS,), generator=generator))


class Trial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext, data: TensorDataset) -> None:
        self.context = context
        self.data = data
        self.model = context.wrap_model(build_model())
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), 0.01))

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(self.data, BATCH_SIZE, shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(TensorDataset(*self.data[:BATCH_SIZE]), BATCH_SIZE)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        inputs, labels = batch
        loss = nn.functional.cross_entropy(self.model(inputs), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"validation_loss": nn.functional.cross_entropy(self.model(batch[0]), batch[1])}


class Clock(pytorch.PyTorchCallback):
    """Times the batches of one fit, without its beginning and its end."""

    def __init__(self) -> None:
        self.began = self.seconds = 0.0

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        self.began = time.perf_counter()

    def on_training_batch_end(
        self, epoch_idx: int, batch_idx: int, metrics: dict[str, Any]
    ) -> None:
        self.seconds = time.perf_counter() - self.began


def by_hand(data: TensorDataset, batches: int) -> float:
    model = DistributedDataParallel(build_model())
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    sampler: DistributedSampler[Any] = DistributedSampler(data, shuffle=True)
    loader = iter(DataLoader(data, BATCH_SIZE, sampler=sampler))
    losses = []
    dist.barrier()
    began = time.perf_counter()
    for _ in range(batches):
        inputs, labels = next(loader)
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()  # type: ignore[no-untyped-call]  # untyped in torch
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
        if len(losses) % 100 == 0:
            torch.stack(losses[-100:]).mean().item()
    return time.perf_counter() - began


def by_fit(data: TensorDataset, batches: int) -> float:
    clock = Clock()
    with (
        tempfile.TemporaryDirectory() as storage,
        pytorch.init(seed=0, checkpoint_storage=storage) as context,
    ):
        trial = Trial(context, data)
        trial.build_callbacks = lambda: {"clock": clock}  # type: ignore[method-assign]  # of this object
        pytorch.Trainer(trial, context).fit(
            max_length=pytorch.Batch(batches), checkpoint_policy="none", progress=False
        )
        context.distributed.allgather(None)
    return clock.seconds


def work(rank: int, options: argparse.Namespace, meeting: str) -> None:
    os.chdir(tempfile.mkdtemp())
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=2)
    data = build_data()
    hand, fit = [], []
    for number in range(options.rounds + 1):
        seconds = by_hand(data, options.batches), by_fit(data, options.batches)
        if number > 0:  # the first warms up
            hand.append(seconds[0] / options.batches)
            fit.append(seconds[1] / options.batches)
    if rank == 0:
        ratios = [ours / theirs for ours, theirs in zip(fit, hand, strict=True)]
        print(f"DDP by hand  {statistics.median(hand) * 1e6:8.0f} us a batch")
        print(f"Trainer.fit  {statistics.median(fit) * 1e6:8.0f} us a batch")
        print(f"ratio        {statistics.median(ratios):8.3f} (of {len(ratios)} rounds)")
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        spawn(work, (options, f"{name}/meeting"), nprocs=2)  # type: ignore[no-untyped-call]  # untyped in torch


if __name__ == "__main__":
    main()
