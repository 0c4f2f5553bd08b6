"""One pass over a dataset with indices: torch's loader, made to repeat itself after a resume."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import torch
from torch.utils.data import DataLoader as TorchDataLoader

from determined.pytorch._data.fetch import BatchFetcher, SeededBatches, as_is, draw_base_seed
from determined.pytorch._data.order.nested_samplers import generators_of
from determined.pytorch._data.seed import forked_rng, mix
from determined.pytorch._data.workers import end_workers, start_worker


class Loader(TorchDataLoader[Any]):
    """Torch's loader, the same for any number of workers and whatever came before a pass.

    Each pass draws one number, as in torch, and all that its workers draw follows from that. With
    persistent workers torch draws in the first pass only, and a worker remembers the passes before.
    """

    def __init__(self, dataset: Any, **options: Any) -> None:
        super().__init__(dataset, **options)
        self._options = options
        self._numbered = _NumberedBatches(self.batch_sampler)
        self._torch: TorchDataLoader[Any] | None = None
        # Whoever holds an error holds the frames, and so the pass, that it came from.
        self._running: Callable[[], Iterator[Any] | None] = lambda: None
        self._pass_seed: Callable[[], int] | None = None
        self._is_shared = False

    def derive_passes(self, seed: Callable[[], int], is_shared: bool) -> None:
        """Let what a new process cannot know of a pass follow from a seed, asked for at each one.

        That is the state of the user's generators; and, if ranks share the passes, the order: the
        global generators of ranks drift apart, for instance when their last batches differ in size.
        """
        generators = generators_of(self.batch_sampler, self.generator)
        self._generators = [(generator, generator.initial_seed()) for generator in generators]
        self._pass_seed, self._is_shared = seed, is_shared

    def __iter__(self) -> Any:
        batches = iter(self._order())
        seed = draw_base_seed(self.generator)
        if self.num_workers == 0 and not self.pin_memory:
            return map(BatchFetcher(self.dataset, self.collate_fn), batches)
        if self._torch is None:
            self._torch = self._build()
        self._torch.generator.manual_seed(seed)
        self._numbered.start(batches, seed if self.num_workers else None)
        iterator = iter(self._torch)
        self._running = weakref.ref(iterator)
        return iterator

    def close(self) -> None:
        """End the workers of the last pass, at once. A later pass starts new ones."""
        iterator, self._torch = self._running(), None
        if iterator is not None:
            end_workers(iterator)

    def _order(self) -> Iterable[Any]:
        batches = cast(Iterable[Any], self.batch_sampler)
        if self._pass_seed is None:
            return batches
        seed = self._pass_seed()
        for generator, initial_seed in self._generators:
            generator.manual_seed(mix(initial_seed, seed))
        if not self._is_shared:
            return batches
        with forked_rng(seed):
            return list(batches)

    def _build(self) -> TorchDataLoader[Any]:
        ours = {
            "batch_sampler": self._numbered,
            "collate_fn": as_is,
            "worker_init_fn": functools.partial(start_worker, self.worker_init_fn),
            "generator": torch.Generator(),
        }
        fetch = BatchFetcher(self.dataset, self.collate_fn)
        return TorchDataLoader(SeededBatches(fetch), **{**self._options, **ours})


class _NumberedBatches:
    """The batches of a pass, each with a seed of its own; torch asks for them once in each pass."""

    def __init__(self, batch_sampler: Any) -> None:
        self._batch_sampler = batch_sampler
        self._next: Iterator[tuple[int | None, list[Any]]] = iter(())

    def start(self, batches: Iterator[Any], seed: int | None) -> None:
        self._next = (
            (None if seed is None else mix(seed, number), list(batch))
            for number, batch in enumerate(batches)
        )

    def __iter__(self) -> Iterator[tuple[int | None, list[Any]]]:
        return self._next

    def __len__(self) -> int:
        return len(self._batch_sampler)
