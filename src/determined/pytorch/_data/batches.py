"""Batches for users: the package's `DataLoader`, and helpers that know what a batch looks like."""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    default_collate,
    default_convert,
)

from determined.pytorch._checks.arguments import (
    check_callable,
    check_count,
    check_flag,
    check_iterable,
    check_kind,
    check_number,
    has_method,
)
from determined.pytorch._data.iterable import StreamLoader
from determined.pytorch._data.loader import Loader
from determined.pytorch.samplers import (
    DistributedBatchSampler,
    RepeatBatchSampler,
    SkipBatchSampler,
)

logger = logging.getLogger("determined.pytorch")

_CPU = torch.device("cpu")

_Array = np.ndarray | torch.Tensor
_Data = dict[str, _Array] | Sequence[_Array] | _Array
TorchData = dict[str, torch.Tensor] | Sequence[torch.Tensor] | torch.Tensor
"""A batch: a tensor, or a dictionary or sequence of them. Any nest of these works as well."""


class DataLoader:
    """The configuration of a loader; `fit` builds the real one for each rank and position.

    Arguments are those of the installed torch's `DataLoader`, with the same meaning.
    `fit` shards the batches over ranks and, after a resume, continues with the very next one:

    - The order of an epoch follows from the trial's seed and the epoch. It does not depend on the
      global generators, even for samplers that draw from them. A user's `generator` gives the order
      of the first epoch as in torch, and its seed the order of the others. Samplers may have
      `set_epoch`, or `state_dict` and `load_state_dict`. Up to 64 batches are read ahead from them.
    - If the dataset or `collate_fn` has `state_dict` and `load_state_dict`, or random generators in
      its attributes, these are saved, for each worker.
    - With workers, `random`, numpy and torch are seeded for each batch, so augmentation depends on
      neither the number of workers nor where a run was interrupted.
    - An `IterableDataset` is read by every rank and worker, each keeping its own batches, and is
      shown a single worker. With `shards_itself = True` on it, each worker batches what it gets.
      With `state_dict` and `load_state_dict` on it, a resume reads only the last batch again.

    Used outside `fit`, it iterates like torch's loader.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool = False,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        **extras: Any,
    ) -> None:
        is_stream = isinstance(dataset, IterableDataset)
        if not is_stream:
            _check_dataset(dataset, is_sized=sampler is None and batch_sampler is None)
        for name, value in (("sampler", sampler), ("batch_sampler", batch_sampler)):
            if value is not None:
                check_iterable(name, value)
        check_count("batch_size", batch_size, at_least=1, optional=True)
        for name, flag in (
            ("shuffle", shuffle),
            ("pin_memory", pin_memory),
            ("drop_last", drop_last),
            ("persistent_workers", persistent_workers),
        ):
            check_flag(name, flag)
        check_callable("collate_fn", collate_fn)
        check_callable("worker_init_fn", worker_init_fn)
        check_kind("generator", generator, torch.Generator, "a torch.Generator")
        if is_stream:
            _check_stream(shuffle, sampler, batch_sampler, batch_size, drop_last)
        elif batch_sampler is None and batch_size is None:
            raise ValueError("`batch_size` must be a number unless a `batch_sampler` is given.")
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        if sampler is not None and shuffle:
            raise ValueError(
                "Give `sampler` or `shuffle`, not both: a sampler determines the order."
            )
        if batch_sampler is not None and (
            batch_size != 1 or shuffle or sampler is not None or drop_last
        ):
            raise ValueError(
                "`batch_sampler` replaces `batch_size`, `shuffle`, `sampler` and `drop_last`: "
                "leave these out."
            )
        _check_extras(extras)

        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.pin_memory = pin_memory
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.generator = generator
        self.persistent_workers = persistent_workers
        self.collate_fn = collate_fn or (default_convert if batch_size is None else default_collate)
        self.batch_size = batch_size if batch_sampler is None else None
        self.drop_last = drop_last
        self.extras = extras
        self.sampler: Any = sampler
        self.batch_sampler: Any = batch_sampler
        if is_stream:
            return
        if sampler is None and shuffle:
            if len(dataset) == 0:
                raise ValueError(
                    f"`dataset` is empty: {type(dataset).__name__} has 0 samples to shuffle. Check "
                    "the path or the split that it is made from."
                )
            self.sampler = RandomSampler(dataset, generator=generator)
        elif sampler is None:
            self.sampler = SequentialSampler(dataset)
        if batch_sampler is None:
            self.batch_sampler = BatchSampler(self.sampler, batch_size or 1, drop_last)

    def get_data_loader(
        self, repeat: bool = False, skip: int = 0, num_replicas: int = 1, rank: int = 0
    ) -> torch.utils.data.DataLoader[Any]:
        """Return torch's loader over this rank's batches; see `adapt_batch_sampler`."""
        _check_share(repeat, skip, num_replicas, rank)
        if isinstance(self.dataset, IterableDataset):
            return StreamLoader(self, repeat=repeat, skip=skip, size=num_replicas, rank=rank)
        return Loader(
            self.dataset,
            batch_sampler=adapt_batch_sampler(self.batch_sampler, repeat, skip, num_replicas, rank),
            collate_fn=self.collate_fn,
            worker_init_fn=self.worker_init_fn,
            generator=self.generator,
            persistent_workers=self.persistent_workers,
            **self.process_options(),
        )

    def process_options(self) -> dict[str, Any]:
        """Return the options for torch's loader that do not say which samples to load."""
        return {
            "num_workers": self.num_workers,
            "prefetch_factor": self.prefetch_factor,
            "pin_memory": self.pin_memory,
            "timeout": self.timeout,
            "multiprocessing_context": self.multiprocessing_context,
            **self.extras,
        }

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get_data_loader())

    def __len__(self) -> int:
        """Return the number of batches of one epoch, over all ranks."""
        if self.batch_sampler is not None:
            return len(self.batch_sampler)
        length = len(self.dataset)
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)


def _check_dataset(dataset: Any, is_sized: bool) -> None:
    if not has_method(dataset, "__getitem__") and not has_method(dataset, "__getitems__"):
        raise TypeError(
            "`dataset` must have `__getitem__`, or be a torch.utils.data.IterableDataset, got "
            f"{dataset!r}."
        )
    if is_sized and not has_method(dataset, "__len__"):
        raise TypeError(
            f"`dataset` must have `__len__` unless there is a sampler, got {dataset!r}."
        )


def _check_stream(
    shuffle: bool, sampler: Any, batch_sampler: Any, batch_size: int | None, drop_last: bool
) -> None:
    if shuffle or sampler is not None or batch_sampler is not None:
        raise ValueError(
            "An IterableDataset determines its own order: leave out `shuffle`, `sampler` and "
            "`batch_sampler`, and shuffle inside the dataset."
        )
    if batch_size is None and drop_last:
        raise ValueError("`drop_last` needs a `batch_size`: without one there is no short batch.")


def _check_workers(
    num_workers: int, timeout: float, prefetch_factor: int | None, persistent_workers: bool
) -> None:
    check_count("num_workers", num_workers)
    check_number("timeout", timeout)
    check_count("prefetch_factor", prefetch_factor, optional=True)
    if prefetch_factor is not None and num_workers == 0:
        raise ValueError("`prefetch_factor` needs worker processes: set `num_workers` above 0.")
    if persistent_workers and num_workers == 0:
        raise ValueError("`persistent_workers` needs worker processes: set `num_workers` above 0.")


def _check_extras(extras: dict[str, Any]) -> None:
    known = inspect.signature(torch.utils.data.DataLoader.__init__).parameters
    unknown = sorted(extras.keys() - known.keys())
    if unknown:
        raise TypeError(
            f"DataLoader() got unknown arguments {', '.join(unknown)}: "
            f"torch {torch.__version__} does not have them either."
        )


def adapt_batch_sampler(
    batch_sampler: Any, repeat: bool = False, skip: int = 0, num_replicas: int = 1, rank: int = 0
) -> BatchSampler:
    """Return the batches for one rank: repeated, then sharded, then without its first `skip`."""
    check_iterable("batch_sampler", batch_sampler)
    _check_share(repeat, skip, num_replicas, rank)
    if repeat:
        batch_sampler = RepeatBatchSampler(batch_sampler)
    if num_replicas > 1:
        batch_sampler = DistributedBatchSampler(batch_sampler, num_replicas, rank)
    if skip > 0:
        batch_sampler = SkipBatchSampler(batch_sampler, skip)
    adapted: BatchSampler = batch_sampler
    return adapted


def _check_share(repeat: bool, skip: int, num_replicas: int, rank: int) -> None:
    check_flag("repeat", repeat)
    check_count("skip", skip)
    check_count("num_replicas", num_replicas, at_least=1)
    check_count("rank", rank)
    if rank >= num_replicas:
        raise ValueError(f"`rank` must be less than `num_replicas` ({num_replicas}), got {rank}.")


def _dataset_repro_warning(build_method: Callable[..., Any], loader: Any) -> str:
    """Return what to tell a user whose build method returned something else than our loader."""
    kind = type(loader)
    return (
        f"{build_method.__name__}() must return a determined.pytorch.DataLoader, got "
        f"{kind.__module__}.{kind.__qualname__}. It shards batches over all slots and lets a "
        "resumed trial continue with the next one. To use another loader anyway, call "
        "`context.experimental.disable_dataset_reproducibility_checks()` in the trial's __init__."
    )


def data_length(data: _Data) -> int:
    """Return the number of records in a batch: the length of the first array or tensor in it.

    A list or tuple that holds no arrays counts its own elements.
    """
    if isinstance(data, (np.ndarray, torch.Tensor)):
        if data.ndim == 0:
            raise TypeError("`data` is a single number: its number of records is undefined.")
        return len(data)
    if isinstance(data, Mapping):
        if not data:
            raise ValueError("`data` is an empty dictionary: its number of records is undefined.")
        return data_length(next(iter(data.values())))
    if isinstance(data, (list, tuple)):
        if not data:
            raise ValueError(
                f"`data` is an empty {type(data).__name__}: its number of records is undefined."
            )
        first = data[0]
        if isinstance(first, (np.ndarray, torch.Tensor)) and first.ndim == 0:
            return len(data)
        if isinstance(first, (np.ndarray, torch.Tensor, Mapping, list, tuple)):
            return data_length(first)  # type: ignore[arg-type]  # batches nest to any depth
        return len(data)
    raise TypeError(
        f"Cannot tell how many records are in `data`, a {type(data).__name__}: expected an array, "
        "a tensor, or a dict, list or tuple of them. Override `get_batch_length` in the trial."
    )


def to_device(
    data: Any, device: torch.device | str, warned_types: set[type] | None = None
) -> TorchData:
    """Move a batch to a device, all containers in it rebuilt with their own type.

    Numpy arrays of numbers become tensors. What cannot be moved stays as it is, with a warning per
    type; pass the same `warned_types` again to get each warning once.
    """
    device = device if isinstance(device, torch.device) else torch.device(device)
    if type(data) is list and device == _CPU:  # quicker than asking for `device.type`
        for item in data:
            if type(item) is not torch.Tensor or not item.is_cpu:
                break
        else:
            return data.copy()
    moved: TorchData = _move(data, device, set() if warned_types is None else warned_types)
    return moved


def _move(data: Any, device: torch.device, warned: set[type]) -> Any:
    if isinstance(data, torch.Tensor):
        if not data.is_cpu:
            return data.to(device)
        return data if device.type == "cpu" else data.to(device, non_blocking=data.is_pinned())
    if isinstance(data, dict):
        return _rebuilt_dict(data, {k: _move(v, device, warned) for k, v in data.items()})
    if isinstance(data, (list, tuple)):
        return _rebuilt_sequence(data, [_move(item, device, warned) for item in data])
    if isinstance(data, np.ndarray) and data.dtype.kind in "fciub":
        return _tensor(data).to(device)
    if callable(getattr(data, "to", None)):
        return data.to(device)
    if type(data) not in warned:
        warned.add(type(data))
        logger.warning("Data of type %s cannot be moved to a device.", type(data).__name__)
    return data


def _rebuilt_dict(data: dict[Any, Any], moved: dict[Any, Any]) -> dict[Any, Any]:
    if type(data) is dict:
        return moved
    rebuilt = copy.copy(data)
    for key, value in moved.items():
        rebuilt[key] = value
    return rebuilt


def _rebuilt_sequence(data: list[Any] | tuple[Any, ...], moved: list[Any]) -> Any:
    if type(data) is list:
        return moved
    if isinstance(data, list):
        rebuilt = copy.copy(data)
        rebuilt[:] = moved
        return rebuilt
    if type(data) is not tuple and hasattr(data, "_make"):
        return data._make(moved)
    try:
        return type(data)(moved)
    except TypeError:
        return tuple(moved)  # a subclass with a constructor of its own


def _tensor(array: np.ndarray) -> torch.Tensor:
    """Return a tensor over the array's memory, or over a copy where torch cannot share it."""
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    return torch.from_numpy(array)
