"""From sample indices to a batch: whole tensors at once where that gives the same result."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset, Subset, TensorDataset, default_collate

from determined.pytorch._data.collate import quickest
from determined.pytorch._data.errors import add_note, describe
from determined.pytorch._data.part_states import PartStates
from determined.pytorch._data.seed import seed_cpu

MAX_HELD_BACK = 16  # batches that a consumer may hold back when it asks for the position
Indices = Sequence[Any] | torch.Tensor
Collate = Callable[[Any], Any]


class BatchFetcher:
    """Turn the indices of one batch into the batch that torch's own loader would give.

    Indices are a list of anything the dataset understands, a `range`, or a tensor of integers.
    """

    def __init__(self, dataset: Any, collate_fn: Collate) -> None:
        self.dataset = dataset
        self.collate_fn = collate_fn
        self._collate = quickest(collate_fn)
        self._tensors = TensorBatches.of(dataset, collate_fn)
        self._get_many = getattr(dataset, "__getitems__", None)

    @property
    def reads_samples(self) -> bool:
        """Whether samples are read one by one, so that indices are best given as a list."""
        return self._tensors is None

    def __call__(self, indices: Indices) -> Any:
        if self._tensors is not None:
            batch = self._tensors(indices)
            if batch is not None:
                return batch
        try:
            return self._collected(indices)
        except StopIteration as error:
            raise RuntimeError(
                f"{describe(self.dataset)} (or the collate function) raised StopIteration, which "
                "would end the data early."
            ) from error

    def _collected(self, indices: Indices) -> Any:
        wanted = indices.tolist() if isinstance(indices, torch.Tensor) else list(indices)
        if self._get_many:
            return self._collate(self._get_many(wanted))
        remaining = iter(wanted)
        try:
            samples = [self.dataset[index] for index in remaining]
        except Exception as error:
            failed = wanted[len(wanted) - operator.length_hint(remaining) - 1]
            add_note(error, f"This was sample {failed!r} of {describe(self.dataset)}.")
            raise
        return self._collate(samples)


class TensorBatches:
    """Batches of a `TensorDataset`, or of `Subset`s of one, by one selection per tensor."""

    def __init__(self, tensors: TensorDataset, subsets: Sequence[Subset[Any]]) -> None:
        self._dataset = tensors
        self._subsets = subsets
        self._checked: tuple[torch.Tensor, ...] | None = None

    @staticmethod
    def of(dataset: Any, collate_fn: Collate) -> TensorBatches | None:
        """Return a selector for `dataset`, or None if it needs the sample by sample path."""
        subsets = []
        # Exact types: a subclass may do anything in `__getitem__`.
        while type(dataset) is Subset:
            subsets.append(dataset)
            dataset = dataset.dataset
        if collate_fn is not default_collate or type(dataset) is not TensorDataset:
            return None
        return TensorBatches(dataset, subsets)

    def __call__(self, indices: Indices) -> list[torch.Tensor] | None:
        """Return the batch, or None where only the sample by sample path knows the answer.

        That path wraps negative indices, for example, and names the index that is out of range.
        """
        tensors = self._dataset.tensors
        if tensors is not self._checked:
            if not all(map(_is_plain, tensors)):
                return None
            self._checked = tensors
        try:
            for subset in self._subsets:
                indices = _pick(subset.indices, indices)
            if len(indices) == 0:
                return None
            if isinstance(indices, range) and indices.step == 1:
                if not 0 <= indices.start < indices.stop <= len(self._dataset):
                    return None
                return [t[indices.start : indices.stop].clone() for t in tensors]
            index = indices if isinstance(indices, torch.Tensor) else torch.tensor(indices)
            if index.dtype not in (torch.int64, torch.int32) or index.dim() != 1:
                return None
            return [t.index_select(0, index.to(t.device)) for t in tensors]
        except (IndexError, RuntimeError, TypeError, ValueError):
            return None


def _is_plain(tensor: torch.Tensor) -> bool:
    return (
        type(tensor) is torch.Tensor
        and tensor.layout is torch.strided
        and not tensor.requires_grad
        and not tensor.is_quantized
        and tensor.dim() > 0
        and tensor.is_contiguous()
    )


def _pick(indices: Any, at: Indices) -> Any:
    """Return `[indices[i] for i in at]` in the quickest form that its type allows."""
    if isinstance(at, range) and at.step == 1 and 0 <= at.start <= at.stop <= len(indices):
        return indices[at.start : at.stop]
    if isinstance(indices, torch.Tensor):
        return indices[torch.as_tensor(at)]
    if isinstance(indices, np.ndarray):
        return torch.as_tensor(indices[np.asarray(at)])
    wanted = at.tolist() if isinstance(at, torch.Tensor) else at
    return [indices[i] for i in wanted]


def draw_base_seed(generator: torch.Generator | None) -> int:
    """Draw as torch's loader does for its workers at each `iter()`, so later draws are the same."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


class SeededBatches(Dataset[Any]):
    """What loader workers read: indices with a seed, under which they are fetched.

    So a batch depends on neither the worker nor what that worker did before. Without a seed the
    generators of the process serve as they are.
    """

    def __init__(self, fetch: BatchFetcher) -> None:
        self.fetch = fetch

    def __getitems__(self, seeded: tuple[int | None, list[Any]]) -> Any:
        seed, indices = seeded
        if seed is not None:
            seed_cpu(seed)
        return self.fetch(indices)

    @property
    def user_dataset(self) -> Any:
        return self.fetch.dataset

    def shown_worker(self, worker: int, num_workers: int) -> tuple[int, int]:
        """Return (id, count) to show to the dataset: any worker may get any batch."""
        return worker, num_workers


class WithStates(NamedTuple):
    """A batch from a worker, and what the dataset there remembers after it."""

    batch: Any
    states: dict[str, Any]


class RememberedBatches(SeededBatches):
    """What training's workers read, which take turns, from any of them on.

    Each worker's dataset has a memory of its own. It comes along with each batch, so that after a
    resume the worker whose turn it is can continue with it.
    """

    def __init__(
        self, fetch: BatchFetcher, first_worker: int, saved: Sequence[dict[str, Any] | None]
    ) -> None:
        super().__init__(fetch)
        self._first_worker = first_worker
        self._saved = saved
        self._to_load: dict[str, Any] | None = None
        self._states = PartStates(dataset=fetch.dataset, collate_fn=fetch.collate_fn)
        self._has_states: bool | None = None

    def shown_worker(self, worker: int, num_workers: int) -> tuple[int, int]:
        """Take the turn that this worker had before the resume."""
        worker = (worker + self._first_worker) % num_workers
        self._to_load = self._saved[worker] if worker < len(self._saved) else None
        return worker, num_workers

    def __getitems__(self, seeded: tuple[int | None, list[Any]]) -> Any:
        if self._has_states is None:  # only now: `worker_init_fn` may have made generators
            self._states.load_state_dict(self._to_load or {})
            self._has_states = bool(self._states)
        batch = super().__getitems__(seeded)
        return WithStates(batch, self._states.state_dict()) if self._has_states else batch


def as_is(batch: Any) -> Any:
    """Collate nothing: what the workers return is a batch already."""
    return batch


def as_list(indices: Indices) -> list[Any]:
    """Return indices in a form that is cheap to take apart and to send to a worker process."""
    return indices.tolist() if isinstance(indices, torch.Tensor) else list(indices)
