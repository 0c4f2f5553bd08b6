"""Validations see the same data, whatever came before them and whoever runs them."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import RandomSampler

from determined.pytorch import DataLoader
from determined.pytorch._data.seed import forked_rng
from determined.pytorch._data.validation_parts import ValidationParts
from tests.support.cut import as_lists
from tests.support.exact import Case, ExactTrial, train, train_in_parts
from tests.support.orders import Noisy, RememberingSampler, StatefulStream, Stream
from tests.support.remembering import Continuing, Counting, Transformed


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def transformed() -> Transformed:
    return Transformed(random.Random(3), lambda rng: rng.random())


LOADERS: dict[str, Callable[[], Any]] = {
    "torch's, with a generator": lambda: TorchDataLoader(
        Noisy(5), 2, shuffle=True, generator=generator()
    ),
    "torch's, with a generator in its sampler": lambda: TorchDataLoader(
        Noisy(5), 2, sampler=RandomSampler(range(5), generator=generator())
    ),
    "torch's, with a stateful stream": lambda: TorchDataLoader(StatefulStream(5), 2),
    "with a generator in a transform": lambda: DataLoader(transformed(), 4).get_data_loader(),
    "with a dataset that counts": lambda: DataLoader(Counting(5), 2).get_data_loader(),
    "torch's, with a sampler that remembers": lambda: TorchDataLoader(
        Noisy(5), 2, sampler=RememberingSampler(5)
    ),
    "with a sampler that has a position": lambda: DataLoader(
        Noisy(5), 2, sampler=Continuing(5)
    ).get_data_loader(),
    "with a stateful stream": lambda: DataLoader(StatefulStream(5), 2).get_data_loader(),
    "with a stream and a generator": lambda: DataLoader(
        Stream(5), 2, generator=generator()
    ).get_data_loader(),
}
WITH_WORKERS: dict[str, Callable[[], Any]] = {
    "torch's": lambda: TorchDataLoader(Noisy(5), 2, num_workers=1, persistent_workers=True),
    "ours": lambda: DataLoader(
        Counting(5), 2, num_workers=1, persistent_workers=True
    ).get_data_loader(),
}


def passes(build: Callable[[], Any], count: int) -> list[Any]:
    loader = build()
    parts = ValidationParts([loader])
    seen = []
    for _ in range(count):
        with forked_rng(1), parts:
            seen.append([as_lists(batch) for batch in loader])
    return seen


@pytest.mark.parametrize("name", LOADERS)
def test_passes_do_not_depend_on_those_before(name: str) -> None:
    first, *others = passes(LOADERS[name], 3)
    assert others == [first, first]


@pytest.mark.multiprocess
@pytest.mark.parametrize("name", WITH_WORKERS)
def test_nor_do_they_with_persistent_workers(name: str) -> None:
    first, second = passes(WITH_WORKERS[name], 2)
    assert second == first


def test_the_dataset_of_training_is_left_alone() -> None:
    dataset = Counting(5)
    dataset.reads = 7
    parts = ValidationParts([DataLoader(dataset, 2).get_data_loader()])
    dataset.reads = 9
    with parts:
        assert dataset.reads == 7
        dataset.reads = 12
    assert dataset.reads == 9


class Shared(ExactTrial):
    """Trains and validates on one dataset, which counts."""

    @functools.cached_property
    def dataset(self) -> Any:
        return Counting(11)

    def build_training_data_loader(self) -> Any:
        return DataLoader(self.dataset, 3, shuffle=True)

    def build_validation_data_loader(self) -> Any:
        return DataLoader(self.dataset, 4)

    def _loss(self, batch: Any) -> torch.Tensor:
        return super()._loss([batch[0].float() / 100, *batch[2:]])


def test_a_shared_dataset_is_exact_and_independent_of_validations(tmp_path: Path) -> None:
    run = functools.partial(train_in_parts, total=9, trial_class=Shared)
    uncut = train(Case(), tmp_path / "uncut", 9, trial_class=Shared)
    assert run(Case(), tmp_path / "cut", cuts=[3, 4]) == uncut
    seldom = train(Case(validate_every=100), tmp_path / "seldom", 9, trial_class=Shared)
    assert seldom.losses == uncut.losses
