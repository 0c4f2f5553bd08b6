"""A pass of the package's loader depends on nothing but the generators at its start."""

from __future__ import annotations

from typing import Any

import psutil
import pytest
import torch

from determined.pytorch._data.batches import DataLoader
from determined.pytorch._data.loader import Loader
from determined.pytorch._data.seed import rng_state, seed_everything, set_rng_state
from tests.support.orders import Noisy


def loader(**arguments: Any) -> Loader:
    made = DataLoader(Noisy(7), 2, shuffle=True, **arguments).get_data_loader()
    assert isinstance(made, Loader)
    return made


def read(batches: Any) -> list[Any]:
    return [[column.tolist() for column in batch] for batch in batches]


@pytest.mark.multiprocess
def test_persistent_workers_forget_the_passes_before() -> None:
    persistent, other = loader(num_workers=2, persistent_workers=True), loader(num_workers=1)
    others = set(psutil.Process().children(recursive=True))
    seed_everything(3)
    first = read(persistent)
    middle = rng_state()
    second = read(persistent)
    end = torch.rand(())
    set_rng_state(middle)
    assert read(other) == second  # as a resumed run would have it, in its first pass
    assert torch.rand(()) == end
    assert first != second
    persistent.close()
    assert set(psutil.Process().children(recursive=True)) <= others
    assert len(read(persistent)) == 4  # with new workers
    persistent.close()


def test_a_pass_draws_as_torch_does() -> None:
    seed_everything(3)
    theirs = read(torch.utils.data.DataLoader(Noisy(7), 2, shuffle=True))
    expected = torch.rand(())
    seed_everything(3)
    assert read(loader()) == theirs
    assert torch.rand(()) == expected


@pytest.mark.multiprocess
@pytest.mark.parametrize("num_workers", [0, 1])
def test_ranks_share_a_pass_though_their_generators_have_drifted_apart(num_workers: int) -> None:
    config = DataLoader(Noisy(7), 2, shuffle=True, num_workers=num_workers)
    seen: list[int] = []
    for rank in range(2):
        shard: Any = config.get_data_loader(num_replicas=2, rank=rank)
        shard.derive_passes(lambda: 5, is_shared=True)
        seed_everything(rank)
        seen += [number for batch in read(shard) for number in batch[0]]
    assert sorted(seen) == list(range(7))


def test_a_users_generator_follows_the_seed_of_the_pass() -> None:
    def passes(*seeds: int) -> list[Any]:
        made = loader(generator=torch.Generator().manual_seed(1))
        todo = iter(seeds)
        made.derive_passes(lambda: next(todo), is_shared=False)
        return [[batch[0] for batch in read(made)] for _ in seeds]

    one, two = passes(1, 2)
    assert passes(2) == [two]
    assert one != two


@pytest.mark.multiprocess
def test_two_passes_at_once_do_not_mix() -> None:
    made = loader(num_workers=1)
    pairs = list(zip(made, made, strict=True))
    for which in range(2):
        numbers = [number for pair in pairs for number in pair[which][0].tolist()]
        assert sorted(numbers) == list(range(7))
