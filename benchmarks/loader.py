"""What a batch costs: torch's own loop against ours, taken in turns on the same data.

    OMP_NUM_THREADS=1 python -m benchmarks.loader [--batches 400] [--rounds 7]

Prints microseconds per batch and the median of the ratios ours / torch: for the loader alone, for
a small training step around it, and for `Trainer.fit` at its defaults (metrics, TensorBoard,
progress) against the same loop written by hand.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Dataset, Subset, TensorDataset

from determined import pytorch
from determined.pytorch._data.batches import DataLoader, to_device
from determined.pytorch._data.training.opening import open_training_data

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


def hand_written(dataset: Any, count: int) -> float:
    """Return the seconds that a plain torch loop needs for `count` batches."""
    return seconds(torch_batches(dataset, shuffle=True), count, training_step())


class Trial(pytorch.PyTorchTrial):
    """The model of `training_step`; notes when its first and last batch began."""

    def __init__(self, context: pytorch.PyTorchTrialContext, dataset: Any, count: int) -> None:
        self.context = context
        self.dataset = dataset
        self.last = count - 1
        self.times: list[float] = []
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 2))
        self.model = context.wrap_model(model)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.optimizer = context.wrap_optimizer(optimizer)

    def build_training_data_loader(self) -> DataLoader:
        return DataLoader(self.dataset, BATCH_SIZE, shuffle=True)

    def build_validation_data_loader(self) -> DataLoader:
        return DataLoader(Subset(self.dataset, range(BATCH_SIZE)), BATCH_SIZE)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        if batch_idx in (0, self.last):
            self.times.append(time.perf_counter())
        loss = nn.functional.cross_entropy(self.model(batch[0]), batch[1])
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"loss": nn.functional.cross_entropy(self.model(batch[0]), batch[1])}


def trained(dataset: Any, count: int) -> float:
    """Return the seconds between the starts of the first and the last of `count` batches."""
    with tempfile.TemporaryDirectory() as directory:
        with pytorch.init(checkpoint_storage=directory) as context:
            trial = Trial(context, dataset, count)
            pytorch.Trainer(trial, context).fit(max_length=pytorch.Batch(count))
        begin, end = trial.times
        return (end - begin) * count / (count - 1)


def compare_training(name: str, dataset: Any, count: int, rounds: int) -> None:
    hand_written(dataset, count // 4), trained(dataset, count // 4)
    pairs = [(hand_written(dataset, count), trained(dataset, count)) for _ in range(rounds)]
    show(name, pairs, count)


def show(name: str, pairs: list[tuple[float, float]], count: int) -> None:
    theirs, ours = (statistics.median(column) / count * 1e6 for column in zip(*pairs, strict=True))
    ratio = statistics.median(our / their for their, our in pairs)
    print(f"{name:<34} {theirs:9.1f} {ours:9.1f} {ratio:8.3f}")


def compare(name: str, dataset: Any, shuffle: bool, trains: bool, count: int, rounds: int) -> None:
    step = training_step() if trains else lambda batch: None
    sources = [torch_batches(dataset, shuffle), our_batches(dataset, shuffle)]
    for source in sources:
        seconds(source, count // 4, step)
    pairs = [
        (seconds(sources[0], count, step), seconds(sources[1], count, step)) for _ in range(rounds)
    ]
    show(name, pairs, count)


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
    for name, dataset in (("tensors", tensors), ("sample by sample", Plain(tensors))):
        count = 5 * options.batches  # reports come every hundred batches
        compare_training(f"Trainer.fit, {name}", dataset, count, options.rounds)


if __name__ == "__main__":
    main()
