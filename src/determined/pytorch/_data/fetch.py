"""From sample indices to a batch: whole tensors at once where that gives the same result."""

from __future__ import annotations

import itertools
import logging
import multiprocessing.queues
import operator
import os
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset, Subset, TensorDataset, default_collate, get_worker_info

from determined.core.hangs.watchdog import prepare_loader_worker
from determined.pytorch._data.collate import quickest
from determined.pytorch._data.part_states import PartStates
from determined.pytorch._data.seed import seed_cpu

logger = logging.getLogger("determined.pytorch")

_HANDING_OVER = ("multiprocessing.connection", "multiprocessing.reduction")

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

    def place(self, worker: int, num_workers: int) -> tuple[int, int]:
        """Return (id, count) to show to the dataset: any worker may get any batch."""
        return worker, num_workers


class WithStates(NamedTuple):
    """A batch from a worker, and what the dataset there remembers after it."""

    batch: Any
    states: dict[str, Any]


class RememberedBatches(SeededBatches):
    """What training's workers read, which take turns, from any of them on.

    What a dataset remembers is of one worker. It comes along with each batch, so that the worker
    whose turn it is after a resume can continue with it.
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

    def place(self, worker: int, num_workers: int) -> tuple[int, int]:
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


def start_worker(user_init: Callable[[int], None] | None, worker_id: int) -> None:
    """Show users their own dataset in `get_worker_info()`, then run their `worker_init_fn`."""
    info = get_worker_info()
    assert info is not None
    ours: Any = info.dataset
    shown_id, shown_count = ours.place(info.id, info.num_workers)
    # The class is frozen for users; what it shows is ours to set, as we replaced the dataset.
    object.__setattr__(info, "dataset", ours.user_dataset)
    object.__setattr__(info, "id", shown_id)
    object.__setattr__(info, "num_workers", shown_count)
    prepare_loader_worker()
    _end_if_results_cannot_be_sent()
    if user_init is not None:
        user_init(shown_id)


def _end_if_results_cannot_be_sent() -> None:
    """Let this worker die of a batch that cannot be pickled: torch would wait for it forever.

    Python only prints such an error, in the thread that sends, and drops the batch.
    """

    def die(error: Exception, batch: object) -> None:
        traceback.print_exception(error)
        os._exit(1)

    multiprocessing.queues.Queue._on_queue_feeder_error = staticmethod(die)  # type: ignore[attr-defined]  # a hook for subclasses


def as_is(batch: Any) -> Any:
    """Collate nothing: what the workers return is a batch already."""
    return batch


def end_workers(iterator: Iterator[Any], grace_seconds: float = 1.0) -> None:
    """Ask the worker processes of a torch loader's iterator to end; kill those that do not.

    Torch alone waits five seconds for each busy worker.
    """
    shut_down = getattr(iterator, "_shutdown_workers", None)
    if shut_down is None:
        return
    killer = threading.Timer(grace_seconds, _kill_workers, (iterator,))
    killer.daemon = True
    killer.start()
    try:
        shut_down()
    finally:
        killer.cancel()


def end_pass(loader: Any, iterator: Iterator[Any]) -> None:
    """End the workers of a pass, persistent ones too: what they drew must not reach the next."""
    end_workers(iterator)
    if getattr(loader, "_iterator", None) is iterator:  # where torch keeps persistent workers
        loader._iterator = None


def _kill_workers(iterator: Any) -> None:
    # Forgotten first: torch raises in the main thread when a worker it knows dies by a signal.
    if iterator._worker_pids_set:
        iterator._worker_pids_set = False
        torch._C._remove_worker_pids(id(iterator))
    for worker in iterator._workers:
        if worker.is_alive():
            worker.kill()


def describe(dataset: Any) -> str:
    """Return the dataset's class, with its length where it has one."""
    length = sized(dataset)
    name = type(dataset).__name__
    return name if length is None else f"{name} ({length} samples)"


def sized(thing: Any) -> int | None:
    """Return `len(thing)`, or None if it has none."""
    # Wrappers pass the question on, and what they wrap may lack a length, or refuse to tell it.
    try:
        return len(thing)
    except (TypeError, NotImplementedError, AttributeError):
        return None


def add_note(error: BaseException, note: str) -> None:
    """Add a line to the error's traceback; Python 3.10 cannot, so there it is logged."""
    if hasattr(error, "add_note"):
        error.add_note(note)
    else:
        logger.error(note)


def name_the_batch(error: Exception, where: str, loader: Any) -> None:
    """Say which data could not be loaded: raise a clearer error, or add a note to this one."""
    text = str(error)
    if isinstance(error, RuntimeError) and text.startswith("DataLoader timed out"):
        raise RuntimeError(
            f"{where} got nothing from the loader's workers for {loader.timeout} seconds "
            "(`timeout`): one hangs or is slow. Set num_workers=0 to see where, or raise the "
            "timeout."
        ) from error
    if (loss := _loss_of_worker(error, loader)) is not None:
        raise RuntimeError(
            f"{where} lost a worker process of the loader: {loss} "
            "Lack of memory is the usual cause; num_workers=0 shows errors in the dataset."
        ) from error
    add_note(error, f"{where} could not be loaded.")


def _loss_of_worker(error: Exception, loader: Any) -> str | None:
    """Say how a worker was lost; None if the error is about something else."""
    text = str(error)
    if isinstance(error, RuntimeError) and text.startswith("DataLoader worker (pid"):
        return text.splitlines()[0]
    # A tensor is fetched from the worker that made it. While that one dies, torch may still take
    # it for alive and lets the error of the broken connection through.
    has_workers = bool(getattr(loader, "num_workers", 0))
    is_broken = isinstance(error, (EOFError, ConnectionError, FileNotFoundError, RuntimeError))
    if has_workers and is_broken and _is_raised_in(error, _HANDING_OVER):
        # Without its text: "connection reset" would make users look for another rank.
        return f"it died while handing over a batch ({type(error).__name__})."
    return None


def _is_raised_in(error: Exception, modules: tuple[str, ...]) -> bool:
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and frames[-1].f_globals.get("__name__") in modules


def naming_failed_batches(loader: Any, name: str) -> Iterator[Any]:
    """Yield the batches of a loader; an error names it and the batch."""
    iterator = iter(loader)
    for batch_idx in itertools.count():
        try:
            batch = next(iterator)
        except StopIteration:
            return
        except Exception as error:
            name_the_batch(error, f"{name}, at batch {batch_idx},", loader)
            raise
        yield batch
