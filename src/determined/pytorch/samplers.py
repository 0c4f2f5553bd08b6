"""Samplers to build training data by hand: repeat, shard, skip, shuffle; one idea per class.

Shuffle first, then repeat (training only), then shard, then batch, then skip (training only). The
package's `DataLoader` does all of this automatically; these are for loaders made without it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sized
from typing import Any, cast

import numpy as np
import torch
from torch.utils.data import BatchSampler, Sampler

from determined.pytorch._checks.arguments import check_count, check_iterable

__all__ = [
    "DistributedBatchSampler",
    "DistributedSampler",
    "RepeatBatchSampler",
    "RepeatSampler",
    "ReproducibleShuffleBatchSampler",
    "ReproducibleShuffleSampler",
    "SkipBatchSampler",
    "SkipSampler",
]


def _repeat(sampler: Iterable[Any]) -> Iterator[Any]:
    while True:
        is_empty = True
        for item in sampler:
            is_empty = False
            yield item
        if is_empty:
            raise RuntimeError(
                f"Cannot repeat {type(sampler).__name__}: a full pass over it gave nothing. "
                "Check the dataset's length, and batch_size if drop_last is set."
            )


def _check_shard(num_workers: int, rank: int) -> None:
    check_count("num_workers", num_workers, at_least=1)
    check_count("rank", rank)
    if rank >= num_workers:
        raise ValueError(f"`rank` must be in 0..{num_workers - 1}, got {rank}.")


def _shard_length(length: int, num_workers: int, rank: int) -> int:
    return length // num_workers + (1 if length % num_workers > rank else 0)


class RepeatSampler(Sampler[Any]):
    """Endless passes over `sampler`, which is iterated again each time."""

    def __init__(self, sampler: Sampler[Any]) -> None:
        check_iterable("sampler", sampler)
        self.sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        return _repeat(self.sampler)

    def __len__(self) -> int:
        return len(cast(Sized, self.sampler))


class RepeatBatchSampler(BatchSampler):
    """Endless passes over `batch_sampler`, which is iterated again each time."""

    def __init__(self, batch_sampler: BatchSampler) -> None:
        check_iterable("batch_sampler", batch_sampler)
        self.batch_sampler = batch_sampler

    def __iter__(self) -> Iterator[list[Any]]:
        return _repeat(self.batch_sampler)

    def __len__(self) -> int:
        return len(self.batch_sampler)


class DistributedSampler(Sampler[Any]):
    """Every `num_workers`-th item of `sampler`, starting at item `rank`."""

    def __init__(self, sampler: Sampler[Any], num_workers: int, rank: int) -> None:
        check_iterable("sampler", sampler)
        _check_shard(num_workers, rank)
        self.sampler = sampler
        self.num_workers = num_workers
        self.rank = rank

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(self.sampler, self.rank, None, self.num_workers)

    def __len__(self) -> int:
        return _shard_length(len(cast(Sized, self.sampler)), self.num_workers, self.rank)


class DistributedBatchSampler(BatchSampler):
    """Every `num_workers`-th batch of `batch_sampler`, starting at batch `rank`."""

    def __init__(self, batch_sampler: BatchSampler, num_workers: int, rank: int) -> None:
        check_iterable("batch_sampler", batch_sampler)
        _check_shard(num_workers, rank)
        self.batch_sampler = batch_sampler
        self.num_workers = num_workers
        self.rank = rank

    def __iter__(self) -> Iterator[list[Any]]:
        return itertools.islice(self.batch_sampler, self.rank, None, self.num_workers)

    def __len__(self) -> int:
        return _shard_length(len(self.batch_sampler), self.num_workers, self.rank)


class SkipSampler(BatchSampler):
    """`sampler` without the first `skip` items of each iteration. The length ignores `skip`."""

    def __init__(self, sampler: Sampler[Any], skip: int) -> None:
        check_iterable("sampler", sampler)
        check_count("skip", skip)
        self.sampler = sampler
        self.skip = skip

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(self.sampler, self.skip, None)

    def __len__(self) -> int:
        return len(cast(Sized, self.sampler))


class SkipBatchSampler(BatchSampler):
    """`batch_sampler` without the first `skip` batches of each iteration.

    The length ignores `skip`: over an infinite sampler it stays the length of one epoch.
    """

    def __init__(self, batch_sampler: BatchSampler, skip: int) -> None:
        check_iterable("batch_sampler", batch_sampler)
        check_count("skip", skip)
        self.batch_sampler = batch_sampler
        self.skip = skip
        self.length = len(batch_sampler)

    def __iter__(self) -> Iterator[list[Any]]:
        return itertools.islice(self.batch_sampler, self.skip, None)

    def __len__(self) -> int:
        return self.length


class _ReproducibleShuffle(Sampler[Any]):
    """Pass k is the k-th shuffle by a private generator; `set_epoch` moves to any k."""

    def __init__(self, items: Iterable[Any], seed: int) -> None:
        check_count("seed", seed)
        if seed >= 2**32:
            raise ValueError(f"`seed` must be less than 2**32, a limit of numpy, got {seed}.")
        self._items = items
        self._seed = seed
        self._rng = np.random.RandomState(seed)
        self._passes = 0

    def __iter__(self) -> Iterator[Any]:
        items = list(self._items)
        self._rng.shuffle(items)
        self._passes += 1
        return iter(items)

    def __len__(self) -> int:
        return len(cast(Sized, self._items))

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass the one with number `epoch`, counted from 0."""
        if epoch < self._passes:
            self._rng = np.random.RandomState(self._seed)
            self._passes = 0
        if epoch > self._passes:
            positions = np.arange(len(self))
            for _ in range(epoch - self._passes):
                self._rng.shuffle(positions)
            self._passes = epoch

    def state_dict(self) -> dict[str, Any]:
        """Return what the next pass depends on."""
        name, keys, *rest = self._rng.get_state()
        words = torch.from_numpy(np.asarray(keys).astype(np.int64))
        return {"seed": self._seed, "passes": self._passes, "rng": [str(name), words, *rest]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where the sampler that gave `state` was."""
        name, keys, *rest = state["rng"]
        self._rng.set_state((name, np.asarray(keys).astype(np.uint32), *rest))
        self._seed = state["seed"]
        self._passes = state["passes"]


class ReproducibleShuffleSampler(_ReproducibleShuffle):
    """The items of `sampler` in an order that depends on `seed` and the number of the pass only."""

    def __init__(self, sampler: Sampler[Any], seed: int) -> None:
        check_iterable("sampler", sampler)
        super().__init__(sampler, seed)
        self.sampler = sampler


class ReproducibleShuffleBatchSampler(_ReproducibleShuffle):
    """Whole batches of `batch_sampler`, in an order that depends on `seed` and the pass only."""

    def __init__(self, batch_sampler: BatchSampler, seed: int) -> None:
        check_iterable("batch_sampler", batch_sampler)
        super().__init__(batch_sampler, seed)
        self.batch_sampler = batch_sampler
