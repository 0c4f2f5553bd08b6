"""What a batch costs: torch's own loop against ours, taken in turns on the same data.

    OMP_NUM_THREADS=1 python -m benchmarks.loader [--batches 400] [--rounds 7]

Prints microseconds per batch and the median of the ratios ours / torch, for the loader alone and
for a small training step around it.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Dataset, Subset, TensorDataset

from determined.pytorch._data import DataLoader, to_device
from determined.pytorch._training_data import open_training_data

BATCH_SIZE = 64
CPU = torch.device("cpu")


class Plain(Dataset[Any]):
    """The same samples without whole-tensor access."""

    def __init__(self, dataset: TensorDataset) -> None:
        self.dataset = dataset

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]

    def __len__(self) -> int:
        return len(self.dataset)


def torch_batches(dataset: Any, shuffle: bool) -> Iterator[Any]:
    loader = TorchDataLoader(dataset, BATCH_SIZE, shuffle=shuffle)
    while True:
        yield from loader


def our_batches(dataset: Any, shuffle: bool) -> Iterator[Any]:
    loader = DataLoader(dataset, BATCH_SIZE, shuffle=shuffle)
    data = open_training_data(loader, seed=0, rank=0, size=1, start=0, saved=None)
    return (to_device(batch, CPU) for batch in data)


def training_step() -> Callable[[Any], None]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(batch: Any) -> None:
        optimizer.zero_grad()
        loss: Any = nn.functional.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()

    return step


def seconds(batches: Iterator[Any], count: int, step: Callable[[Any], None]) -> float:
    begin = time.perf_counter()
    for batch in itertools.islice(batches, count):
        step(batch)
    return time.perf_counter() - begin


def compare(name: str, dataset: Any, shuffle: bool, trains: bool, count: int, rounds: int) -> None:
    step = training_step() if trains else lambda batch: None
    sources = [torch_batches(dataset, shuffle), our_batches(dataset, shuffle)]
    for source in sources:
        seconds(source, count // 4, step)
    times = [[seconds(source, count, step) for source in sources] for _ in range(rounds)]
    theirs, ours = (statistics.median(column) / count * 1e6 for column in zip(*times, strict=True))
    ratio = statistics.median(our / their for their, our in times)
    print(f"{name:<34} {theirs:9.1f} {ours:9.1f} {ratio:8.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--batches", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()

    tensors = TensorDataset(torch.randn(20_000, 20), torch.randint(0, 2, (20_000,)))
    subset = Subset(tensors, list(range(0, 20_000, 2)))
    print(f"{'batches of ' + str(BATCH_SIZE):<34} {'torch us':>9} {'ours us':>9} {'ratio':>8}")
    for trains in (False, True):
        what = "training, " if trains else "loading, "
        for name, dataset, shuffle in (
            ("tensors shuffled", tensors, True),
            ("tensors in order", tensors, False),
            ("subset shuffled", subset, True),
            ("sample by sample", Plain(tensors), True),
        ):
            compare(what + name, dataset, shuffle, trains, options.batches, options.rounds)


if __name__ == "__main__":
    main()
