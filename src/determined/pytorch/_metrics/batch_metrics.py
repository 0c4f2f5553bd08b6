"""Metrics of many batches: kept as tensors while training runs, numbers when they are needed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np
import torch

from determined.common.check import CheckFailedError
from determined.core._distributed import DistributedContext
from determined.errors import InvalidExperimentException
from determined.pytorch._metrics.reducer import Reducer, _simple_reduce_metrics, to_numpy
from determined.pytorch._ranks.fsdp import is_dtensor
from determined.util import make_metrics

# One column: an array with a row per batch where that is possible, else the values as they came.
Column = np.ndarray | list[Any]

# Values are packed into arrays after so many batches: few copies, bounded memory.
_CHUNK = 1024

_NUMPY_TYPES: dict[torch.dtype, type[np.generic]] = {
    torch.float32: np.float32,
    torch.float64: np.float64,
    torch.float16: np.float16,
    torch.int64: np.int64,
    torch.int32: np.int32,
    torch.bool: np.bool_,
}


def _convert_metrics_to_numpy(metrics: dict[str, Any]) -> dict[str, Any]:
    """Replace the tensors of `metrics` by arrays, in place."""
    for name, value in metrics.items():
        if isinstance(value, torch.Tensor):
            metrics[name] = _named(name, functools.partial(to_numpy, value))
    return metrics


class BatchMetrics:
    """Collects one dictionary of metrics per batch without waiting for the device."""

    def __init__(self) -> None:
        self._collected: dict[str, _Collected] = {}
        self._length = 0

    @classmethod
    def of(cls, columns: Mapping[str, Column], length: int) -> BatchMetrics:
        """Go on after so many batches, whose `columns` these are."""
        metrics = cls()
        metrics._length = length
        for name, column in columns.items():
            metrics._collected[name] = _Collected([column])
        return metrics

    def __len__(self) -> int:
        return self._length

    def append(self, metrics: Mapping[str, Any]) -> None:
        """Keep the metrics of one batch."""
        collected = self._collected
        if collected.keys() != metrics.keys():
            if self._length:
                raise CheckFailedError(
                    "Metrics must have the same names in all batches of a report, got "
                    f"{sorted(collected, key=str)} and {sorted(metrics, key=str)}. Return every "
                    "metric from every batch."
                )
            collected = self._collected = {name: _Collected() for name in metrics}
        for name, value in metrics.items():
            collected[name].append(value)
        self._length += 1
        if self._length % _CHUNK == 0:
            self._fetch()
            for values in collected.values():
                values.pack()

    def _fetch(self) -> None:
        """Copy what is on a device, all metrics at once: the host waits once, not once for each."""
        waiting = {values: values.on_device() for values in self._collected.values()}
        stacks = [stack for stack in waiting.values() if stack is not None]
        if len(stacks) > 1:
            hosts = iter(_on_host(stacks))
            for values, stack in waiting.items():
                if stack is not None:
                    values.replace_by(next(hosts))

    def columns(self) -> dict[str, Column]:
        """Return one column per metric name."""
        self._fetch()
        return {name: _named(name, values.column) for name, values in self._collected.items()}


def _named(name: str, read: Callable[[], Column]) -> Column:
    """Read a column; an error names the metric."""
    # What torch raises for tensors that hold no readable numbers, on `meta` or sparse.
    try:
        return read()
    except (TypeError, NotImplementedError, RuntimeError) as e:
        raise TypeError(f"The metric {name!r} cannot be read: {e}") from e


class _Collected:
    """The values of one metric."""

    def __init__(self, parts: list[Column] | None = None) -> None:
        self._parts: list[Column] = [] if parts is None else parts
        self._values: list[Any] = []
        # The type of tensors whose numbers `_values` holds; None if it holds what came.
        self._dtype: torch.dtype | None = None

    def append(self, value: Any) -> None:
        # The CPU is never behind, so its numbers can be read at once; no tensor is kept.
        if type(value) is torch.Tensor and value.is_cpu and value.dim() == 0:
            dtype = value.dtype
            if dtype is not self._dtype:
                if dtype not in _NUMPY_TYPES:
                    self._append_other(value)
                    return
                self.pack()
                self._dtype = dtype
            self._values.append(value.item())
        else:
            self._append_other(value)

    def _append_other(self, value: Any) -> None:
        if self._dtype is not None:
            self.pack()
        if isinstance(value, torch.Tensor):
            if is_dtensor(value):  # such as the norm of the gradients of a split model
                value = value.full_tensor()
            # The next batch may overwrite a buffer or a view of the weights.
            is_fresh = not value.is_leaf and not value._is_view()
            # `data` is `detach()` at half its price.
            value = value.data if is_fresh else value.detach().clone()
        self._values.append(value)

    def on_device(self) -> torch.Tensor | None:
        """Return the values as one tensor if they are tensors on a device that go together."""
        first = self._values[0] if self._values and self._dtype is None else None
        if type(first) is not torch.Tensor or first.is_cpu or first.is_meta:
            return None
        kind = (first.shape, first.dtype, first.device)
        if first.layout != torch.strided or first.is_quantized or first.is_conj():
            return None
        if all(
            type(v) is torch.Tensor and (v.shape, v.dtype, v.device) == kind for v in self._values
        ):
            return torch.stack(self._values)
        return None

    def replace_by(self, values: torch.Tensor) -> None:
        """Take what `on_device` returned, from the host."""
        self._values = []
        self._parts.append(to_numpy(values))

    def pack(self) -> None:
        """Make an array of the values so far, where that is possible."""
        if self._dtype is not None:
            self._parts.append(np.array(self._values, _NUMPY_TYPES[self._dtype]))
        elif self._values:
            self._parts.append(_column(self._values))
        self._values, self._dtype = [], None

    def column(self) -> Column:
        self.pack()
        if len(self._parts) > 1:
            self._parts = [_join(self._parts)]
        return self._parts[0]


def _on_host(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Copy tensors to the host: as bytes, in one copy for each device."""
    hosts: dict[int, torch.Tensor] = {}
    for device in dict.fromkeys(tensor.device for tensor in tensors):
        mine = [i for i, tensor in enumerate(tensors) if tensor.device == device]
        parts = [tensors[i].reshape(-1).view(torch.uint8) for i in mine]
        together = torch.cat(parts).cpu()
        for i, part in zip(mine, torch.split(together, [len(p) for p in parts]), strict=True):
            hosts[i] = part.clone().view(tensors[i].dtype).reshape(tensors[i].shape)
    return [hosts[i] for i in range(len(tensors))]


def _column(values: list[Any]) -> Column:
    first = values[0]
    if isinstance(first, torch.Tensor) and all(
        isinstance(v, torch.Tensor) and v.shape == first.shape and v.dtype == first.dtype
        for v in values
    ):
        return to_numpy(torch.stack(values))
    return [to_numpy(v) if isinstance(v, torch.Tensor) else v for v in values]


def _join(parts: list[Column]) -> Column:
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    if len(arrays) == len(parts) and len({(a.dtype, a.shape[1:]) for a in arrays}) == 1:
        return np.concatenate(arrays)
    return [value for part in parts for value in _values(part)]


def _values(column: Column) -> list[Any]:
    if isinstance(column, np.ndarray):
        return [column[i, ...] for i in range(len(column))]
    return column


class Rows(Sequence[dict[str, Any]]):
    """The dictionary of each batch, tensors as arrays; made on first access."""

    def __init__(self, columns: Mapping[str, Column], length: int) -> None:
        self.columns = columns
        self._length = length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        return self._made[index]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._made)

    @functools.cached_property
    def _made(self) -> list[dict[str, Any]]:
        values = {name: _values(column) for name, column in self.columns.items()}
        return [{name: column[i] for name, column in values.items()} for i in range(self._length)]


def averages(columns: Mapping[str, Column]) -> dict[str, Any]:
    """Average each metric over its batches; what cannot be averaged gives None."""
    result = {}
    for name, column in columns.items():
        if isinstance(column, np.ndarray) and column.dtype.kind in "fiub" and column.size:
            result[name] = float(np.mean(column))
        else:
            single = [{name: value} for value in _values(column)]
            result[name] = make_metrics(None, single)["avg_metrics"][name]
    return result


def average_over_ranks(gathered: Sequence[tuple[int, dict[str, Column]]]) -> dict[str, Column]:
    """Average each batch's metrics over the ranks that trained it."""
    trained = {rank: columns for rank, (length, columns) in enumerate(gathered) if length}
    return {
        name: _mean_column([columns[name] for columns in trained.values()])
        for name in _common_names("train_batch", trained)
    }


def _common_names(method: str, of_ranks: Mapping[int, Mapping[str, Any]]) -> list[str]:
    """Return the metric names, which must be the same on all ranks."""
    first: tuple[int, list[str]] | None = None
    for rank, metrics in of_ranks.items():
        if first is None:
            first = rank, list(metrics)
        elif set(metrics) != set(first[1]):
            raise CheckFailedError(
                f"{method} must return the same metrics on all ranks: "
                f"{sorted(first[1], key=str)} on rank {first[0]}, "
                f"{sorted(metrics, key=str)} on rank {rank}."
            )
    return [] if first is None else first[1]


def _mean_column(parts: list[Column]) -> Column:
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    if len(arrays) == len(parts) and len({a.shape for a in arrays}) == 1:
        if arrays[0].dtype.kind in "fiubc":
            return np.asarray(np.mean(np.stack(arrays), axis=0))
        return arrays[0]
    return [_mean_value(list(of_ranks)) for of_ranks in zip(*map(_values, parts), strict=False)]


def _mean_value(of_ranks: list[Any]) -> Any:
    known = [value for value in of_ranks if value is not None]
    try:
        return np.asarray(np.mean(np.stack(known), axis=0))[()] if known else None
    except (TypeError, ValueError):  # strings, ragged arrays: use the first rank's value
        return known[0]


def _combine_and_average_training_metrics(
    distributed: DistributedContext, per_batch_metrics: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Average a list of batch metrics over all ranks; ranks but the chief get their own back."""
    batch_metrics = BatchMetrics()
    for metrics in per_batch_metrics:
        batch_metrics.append(metrics)
    gathered = distributed.gather((len(batch_metrics), batch_metrics.columns()))
    if gathered is None:
        return per_batch_metrics
    return list(Rows(average_over_ranks(gathered), max(length for length, _ in gathered)))


def _prepare_metrics_reducers(
    reducer: Reducer | dict[str, Reducer], keys: Any
) -> dict[str, Reducer]:
    """Return the reducer of each metric name."""
    reducers = reducer if isinstance(reducer, dict) else dict.fromkeys(keys, reducer)
    if set(reducers) != set(keys):
        raise InvalidExperimentException(
            "`evaluation_reducer` must name exactly the metrics of `evaluate_batch`: it names "
            f"{sorted(map(str, reducers))}, the metrics are {sorted(map(str, keys))}."
        )
    for name, one in reducers.items():
        if not isinstance(one, Reducer):
            raise InvalidExperimentException(
                f"`evaluation_reducer` must give a pytorch.Reducer for {name!r}, got {one!r}."
            )
    return reducers


def reduce_column(
    reducer: Reducer, column: Column, batch_lengths: Sequence[int] | None = None
) -> Any:
    """Reduce one metric over batches; batches may differ in shape.

    `batch_lengths` are the samples of each batch, by which SAMPLE_AVG weighs the batch's mean.
    """
    if reducer == Reducer.SAMPLE_AVG:
        means = [np.mean(np.asarray(value)) for value in column]
        return _simple_reduce_metrics(reducer, means, batch_lengths)
    if isinstance(column, np.ndarray) and column.size:
        return _simple_reduce_metrics(reducer, column)
    arrays = [np.asarray(value) for value in column]
    if not any(array.size for array in arrays):
        raise ValueError("it is empty")
    if len({array.shape for array in arrays}) == 1:
        return _simple_reduce_metrics(reducer, np.stack(arrays))
    return _simple_reduce_metrics(reducer, np.concatenate([array.ravel() for array in arrays]))


def _reduce_metrics(
    distributed: DistributedContext,
    columns: Mapping[str, Column],
    num_batches: int,
    reducers: Mapping[str, Reducer],
    batch_lengths: Sequence[int] = (),
) -> dict[str, Any]:
    """Reduce over batches, then over ranks, weighed by their batches or, SAMPLE_AVG, their samples.

    The chief gets the result.
    """
    if Reducer.SAMPLE_AVG in reducers.values():
        _check_lengths(batch_lengths, num_batches)
    mine = {}
    for name, column in columns.items():
        try:
            mine[name] = reduce_column(reducers[name], column, batch_lengths)
        except (TypeError, ValueError, OverflowError) as e:
            first = next(iter(column), None)
            if isinstance(first, (str, np.str_)):
                raise TypeError(
                    f"The metric {name!r} of evaluate_batch is text ({str(first)!r}), which has no "
                    "average: return numbers, and print text or write it to TensorBoard."
                ) from None
            raise TypeError(
                f"The metric {name!r} of evaluate_batch cannot be reduced by {reducers[name]}: "
                f"{e}. Return numbers, or wrap a reducer of your own with context.wrap_reducer."
            ) from e
    if distributed.size == 1:
        return mine
    gathered = distributed.gather((num_batches, mine, dict(reducers), sum(batch_lengths)))
    if gathered is None:
        return {}
    filled = [(metrics, count, samples) for count, metrics, _, samples in gathered if count]
    _common_names(
        "evaluate_batch",
        {rank: metrics for rank, (count, metrics, _, _) in enumerate(gathered) if count},
    )
    reducers = next(r for count, _, r, _ in gathered if count)
    all_metrics, counts, samples = (list(each) for each in zip(*filled, strict=True))
    weights = {Reducer.AVG: counts, Reducer.SAMPLE_AVG: samples}
    return {
        name: _simple_reduce_metrics(
            reducer, [metrics[name] for metrics in all_metrics], weights.get(reducer)
        )
        for name, reducer in reducers.items()
    }


def _check_lengths(batch_lengths: Sequence[int], num_batches: int) -> None:
    """Refuse to weight by samples if their number is unknown."""
    if len(batch_lengths) == num_batches and all(length > 0 for length in batch_lengths):
        return
    raise InvalidExperimentException(
        "Reducer.SAMPLE_AVG weights each batch by its number of samples, but `get_batch_length` "
        f"gave {list(batch_lengths[:5])} for the first of {num_batches} batches. Override "
        "`get_batch_length(self, batch)` to return the number of samples, at least 1."
    )
