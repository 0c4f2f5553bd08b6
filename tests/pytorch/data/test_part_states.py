"""Datasets, samplers and collate functions that remember what they did continue with it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    ConcatDataset,
    IterableDataset,
    Sampler,
    Subset,
    default_collate,
)
from torch.utils.data import DataLoader as TorchDataLoader

from determined.pytorch import DataLoader
from determined.pytorch._data.seed import rng_state
from tests.support.cut import as_lists, opened, through_a_file, trained
from tests.support.orders import (
    KINDS,
    EpochSampler,
    Noisy,
    NumpySampler,
    RememberingSampler,
    StatefulSampler,
    StatefulStream,
    Stream,
    arguments_of,
)
from tests.support.remembering import Continuing, Counting, Transformed

TOTAL, CUTS = 14, (1, 6, 8, 11)  # four batches make an epoch: 8 is the end of one


class CountingCollate:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, samples: list[Any]) -> Any:
        self.calls += 1
        return [*default_collate(samples), self.calls]

    def state_dict(self) -> dict[str, int]:
        return {"calls": self.calls}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.calls = state["calls"]


def with_generator(rng: Any, draw: Callable[[Any], float]) -> Callable[[], Transformed]:
    return lambda: Transformed(rng(3), draw)


DATASETS: dict[str, Callable[[], Any]] = {
    "with state": Counting,
    "in a subset": lambda: Subset(Counting(20), range(11)),
    "joined": lambda: ConcatDataset([Counting(6), Counting(5)]),
    "numpy generator": with_generator(np.random.default_rng, lambda rng: float(rng.random())),
    "numpy philox": with_generator(
        lambda seed: np.random.Generator(np.random.Philox(seed)), lambda rng: float(rng.normal())
    ),
    "older numpy generator": with_generator(
        np.random.RandomState, lambda rng: float(rng.standard_normal())
    ),
    "python generator": with_generator(random.Random, lambda rng: rng.gauss(0, 1)),
    "torch generator": with_generator(
        lambda seed: torch.Generator().manual_seed(seed),
        lambda rng: float(torch.rand((), generator=rng)),
    ),
}


@pytest.mark.parametrize("name", DATASETS)
def test_what_a_dataset_remembers_continues(name: str) -> None:
    def build() -> DataLoader:
        return DataLoader(DATASETS[name](), 3, shuffle=True, collate_fn=CountingCollate())

    assert trained(build, TOTAL, CUTS) == trained(build, TOTAL)


@pytest.mark.multiprocess
@pytest.mark.parametrize("name", ["with state", "numpy generator"])
def test_so_it_does_in_each_worker(name: str) -> None:
    def build() -> DataLoader:
        options: dict[str, Any] = {"num_workers": 2, "collate_fn": CountingCollate()}
        return DataLoader(DATASETS[name](), 3, shuffle=True, **options)

    assert trained(build, TOTAL, (3, 8)) == trained(build, TOTAL)


@pytest.mark.multiprocess
def test_a_generator_made_in_a_worker_continues_too() -> None:
    def make(worker: int) -> None:
        info = torch.utils.data.get_worker_info()
        assert info is not None
        info.dataset.transforms[0].rng = np.random.default_rng(worker)  # type: ignore[attr-defined]

    def build() -> DataLoader:
        dataset = Transformed(None, lambda rng: float(rng.random()))
        return DataLoader(dataset, 3, num_workers=2, worker_init_fn=make)

    assert trained(build, TOTAL, [3]) == trained(build, TOTAL)


def test_another_number_of_workers_is_said(caplog: pytest.LogCaptureFixture) -> None:
    data = opened(DataLoader(Counting(), 3))
    next(data)
    saved = {**data.state_dict(1), "num_workers": 2}
    opened(DataLoader(Counting(), 3), 1, saved)
    assert "with 0 workers and 1 slots instead of 2 and 1 they start afresh" in caplog.text


def test_an_epoch_set_by_the_trial_is_put_back() -> None:
    class Growing(Noisy):
        epoch = 0

        def __init__(self) -> None:
            super().__init__(11)
            self.epoch = 0

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __getitem__(self, index: int) -> Any:
            return self.epoch, *super().__getitem__(index)

    def set_epoch(loader: DataLoader, seen: list[Any]) -> None:  # as a hook of a callback would
        if len(seen) % 4 == 0:
            loader.dataset.set_epoch(len(seen) // 4)

    def run(*cuts: int) -> list[Any]:
        return trained(lambda: DataLoader(Growing(), 3), TOTAL, cuts, after_batch=set_epoch)

    assert run(5, 10) == run()


# Samplers.


class Hardest(Sampler[int]):
    """Prefers samples with large losses, as soon as it knows of them."""

    def __init__(self, length: int) -> None:
        self.losses = [1.0] * length

    def __iter__(self) -> Iterator[int]:
        for _ in self.losses:
            yield random.choices(range(len(self.losses)), self.losses)[0]

    def __len__(self) -> int:
        return len(self.losses)


class HardestWithState(Hardest):
    def state_dict(self) -> dict[str, list[float]]:
        return {"losses": self.losses}

    def load_state_dict(self, state: dict[str, list[float]]) -> None:
        self.losses = state["losses"]


def react(loader: Any, seen: list[Any]) -> None:
    for index in seen[-1][0]:
        loader.sampler.losses[index] = 0.1 + random.random()


@pytest.mark.parametrize("length", [11, 3 * 150])  # within one chunk that is read ahead, and more
def test_a_sampler_that_reacts_to_losses_continues(length: int) -> None:
    def build() -> DataLoader:
        return DataLoader(Noisy(length), 3, sampler=HardestWithState(length))

    total = max(TOTAL, length // 2)
    uncut = trained(build, total, after_batch=react)
    for cuts in ([2, 7], [8], [total // 3, total // 2, total - 2]):
        assert trained(build, total, cuts, after_batch=react) == uncut


@pytest.mark.multiprocess
def test_so_it_does_when_workers_read_ahead() -> None:
    def build() -> DataLoader:
        return DataLoader(Noisy(11), 3, sampler=HardestWithState(11), num_workers=2)

    uncut = trained(build, TOTAL, after_batch=react)
    assert trained(build, TOTAL, [5, 8], after_batch=react) == uncut


@pytest.mark.parametrize("length", [11, 12, 3 * 150])
def test_a_sampler_whose_state_changes_within_an_epoch_continues(
    length: int, caplog: pytest.LogCaptureFixture
) -> None:
    def build() -> DataLoader:
        return DataLoader(Noisy(length), 3, sampler=Continuing(length))

    total = max(TOTAL, length // 3 + 20)
    uncut = trained(build, total)
    for cuts in (CUTS, [4], [total // 3, total // 2, total - 2]):
        assert trained(build, total, cuts) == uncut
    assert not caplog.messages


def test_a_sampler_with_an_epoch_and_a_generator_continues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Shifting(EpochSampler):
        def __init__(self) -> None:
            super().__init__(11)
            self.rng = np.random.default_rng(5)

        def __iter__(self) -> Iterator[int]:
            return iter(((self.rng.permutation(11) + self.epoch) % 11).tolist())

    def build() -> DataLoader:
        return DataLoader(Noisy(11), 3, sampler=Shifting())

    uncut = trained(build, TOTAL)
    for cuts in (CUTS, [4], [5, 9]):
        assert trained(build, TOTAL, cuts) == uncut
    assert not caplog.messages


@pytest.mark.parametrize("cut", [3, 4, 6])
def test_a_sampler_that_cannot_repeat_itself_is_named(
    cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    def build() -> DataLoader:
        return DataLoader(Noisy(11), 3, sampler=Hardest(11))

    trained(build, 8, [cut], after_batch=react)
    assert "Hardest does not give the indices again that it gave before" in caplog.text
    assert "`state_dict` and `load_state_dict` on it make it exact" in caplog.text


def test_other_read_ahead_of_a_sampler_that_reacts_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def build() -> DataLoader:
        return DataLoader(Noisy(11), 3, sampler=HardestWithState(11))

    loader = build()
    data = opened(loader)
    for batch in itertools.islice(data, 6):
        react(loader, [[batch[0].tolist()]])
    saved = through_a_file(data.state_dict(6))
    saved["ahead"]["read_ahead"] = 4
    next(opened(build(), 6, saved))
    assert "now read it 0 batches ahead instead of 4" in caplog.text


@pytest.mark.parametrize("kind", KINDS)
def test_samplers_that_repeat_themselves_are_not_named(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    def build() -> DataLoader:
        return DataLoader(Noisy(11), **arguments_of(kind, 11, 3))

    trained(build, TOTAL, CUTS)
    assert not caplog.messages


# Any other loader.


class Buffered(IterableDataset[Any]):
    """Shuffles in a buffer, with the global generators, as it goes along."""

    def __iter__(self) -> Iterator[Any]:
        buffer: list[int] = []
        for number in range(11):
            buffer.append(number)
            if len(buffer) == 4:
                yield buffer.pop(random.randrange(4)), random.random()
        yield from ((number, random.random()) for number in buffer)


class Batches:
    """A loader made by hand: a generator of five batches, with draws in each."""

    def __iter__(self) -> Iterator[Any]:
        for _ in range(5):
            yield torch.rand(3) + random.random()


class BatchesWithState(Batches):
    """Draws when it is asked for its state, as torchdata's loader does if it begins to read."""

    def __init__(self) -> None:
        self.given = 0

    def __iter__(self) -> Iterator[Any]:
        while self.given < 5:
            self.given += 1
            yield torch.rand(3) + random.random() + self.given
        self.given = 0

    def state_dict(self) -> dict[str, int]:
        torch.rand(()), random.random()
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.given = state["given"]


def torchs(dataset: Any = None, **options: Any) -> Callable[[], Any]:
    def build() -> Any:
        given = {name: value() if callable(value) else value for name, value in options.items()}
        return TorchDataLoader(Noisy(11) if dataset is None else dataset(), 3, **given)

    return build


OTHERS: dict[str, Callable[[], Any]] = {
    "in order": torchs(),
    "shuffled": torchs(shuffle=True),
    "own generator": torchs(shuffle=True, generator=lambda: torch.Generator().manual_seed(5)),
    "random collate": torchs(collate_fn=lambda: lambda s: [*default_collate(s), random.random()]),
    "sampler that draws as it goes": torchs(sampler=lambda: NumpySampler(11)),
    "sampler with a generator": torchs(sampler=lambda: RememberingSampler(11)),
    "sampler with state": torchs(sampler=lambda: StatefulSampler(11)),
    "sampler with a position": torchs(sampler=lambda: Continuing(11)),
    "dataset with state": torchs(Counting, shuffle=True),
    "stream": torchs(lambda: Stream(11)),
    "stream with a buffer": torchs(Buffered),
    "stream with state": torchs(lambda: StatefulStream(11)),
    "made by hand": Batches,
    "made by hand, with state": BatchesWithState,
}


@pytest.mark.parametrize("name", OTHERS)
def test_any_other_loader_continues_with_all_that_it_draws(name: str) -> None:
    assert trained(OTHERS[name], TOTAL, CUTS) == trained(OTHERS[name], TOTAL)


@pytest.mark.multiprocess
@pytest.mark.parametrize("is_persistent", [False, True])
def test_so_do_its_workers(is_persistent: bool) -> None:
    build = torchs(shuffle=True, num_workers=1, persistent_workers=is_persistent)
    assert trained(build, 10, [6]) == trained(build, 10)


def test_asking_a_loader_for_its_state_leaves_the_generators_alone() -> None:
    data = opened(BatchesWithState())
    saved = None
    for _ in range(3):
        before = rng_state()
        saved = data.state_dict(data._delivered)
        assert as_lists(before["cpu_rng_state"]) == as_lists(rng_state()["cpu_rng_state"])
        assert before["random_rng_state"] == rng_state()["random_rng_state"]
        next(data)
    assert opened(BatchesWithState(), 2, saved).state_dict(2) == saved  # nothing was read since


@pytest.mark.parametrize("num_workers", [0, 2])
def test_workers_of_a_loader_with_its_own_state_are_named(
    num_workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    class Workers(BatchesWithState):
        def __init__(self) -> None:
            super().__init__()
            self.num_workers = num_workers

    trained(Workers, 8, [3])
    said = "Workers restores its own position, but not the random numbers of its workers"
    assert (said in caplog.text) == (num_workers > 0)


def test_an_epoch_that_a_hook_sets_on_its_sampler_is_put_back() -> None:
    def set_epoch(loader: Any, seen: list[Any]) -> None:
        if len(seen) % 4 == 0:
            loader.sampler.set_epoch(len(seen) // 4)

    def run(*cuts: int) -> list[Any]:
        build = torchs(sampler=lambda: EpochSampler(11))
        return trained(build, TOTAL, cuts, after_batch=set_epoch)

    assert run(6, 10) == run()
