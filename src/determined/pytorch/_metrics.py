"""Metrics of many batches: kept as tensors while training runs, numbers when they are needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from determined import util
from determined.common.check import CheckFailedError
from determined.core._distributed import DistributedContext
from determined.errors import InvalidExperimentException
from determined.pytorch._fsdp import is_dtensor
from determined.pytorch._reducer import Reducer, _simple_reduce_metrics, to_numpy

# One column: an array with a row per batch where that is possible, else the values as they came.
Column = np.ndarray | list[Any]

# Tensors wait on the device until so many batches are there: few copies, bounded memory.
_CHUNK = 1024


def _convert_metrics_to_numpy(metrics: dict[str, Any]) -> dict[str, Any]:
    """Replace the tensors of `metrics` by arrays, in place."""
    for name, value in metrics.items():
        if isinstance(value, torch.Tensor):
            metrics[name] = to_numpy(value)
    return metrics


class BatchMetrics:
    """Collects one dictionary of metrics per batch without waiting for the device."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._chunks: list[dict[str, Column]] = []
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, metrics: Mapping[str, Any]) -> None:
        """Keep the metrics of one batch."""
        row = {}
        for name, value in metrics.items():
            if isinstance(value, torch.Tensor):
                if is_dtensor(value):  # such as the norm of the gradients of a split model
                    value = value.full_tensor()
                # The next batch may overwrite a buffer or a view of the weights.
                is_fresh = not value.is_leaf and not value._is_view()
                # `data` is `detach()` at half its price.
                value = value.data if is_fresh else value.detach().clone()
            row[name] = value
        self._rows.append(row)
        self._length += 1
        if len(self._rows) == _CHUNK:
            self._compact()

    def _compact(self) -> None:
        if not self._rows:
            return
        names = self._rows[0].keys()
        for row in self._rows:
            if row.keys() != names:
                raise CheckFailedError(
                    "Metrics must have the same names in all batches of a report, got "
                    f"{sorted(names)} and {sorted(row)}. Return every metric from every batch."
                )
        self._chunks.append({name: _column([row[name] for row in self._rows]) for name in names})
        self._rows = []
        if self._chunks[0].keys() != self._chunks[-1].keys():
            raise CheckFailedError(
                "Metrics must have the same names in all batches of a report, got "
                f"{sorted(self._chunks[0])} and {sorted(self._chunks[-1])}."
            )

    def columns(self) -> dict[str, Column]:
        """Return one column per metric name."""
        self._compact()
        if len(self._chunks) > 1:
            joined = {
                name: _join([chunk[name] for chunk in self._chunks]) for name in self._chunks[0]
            }
            self._chunks = [joined]
        return self._chunks[0] if self._chunks else {}


def _column(values: list[Any]) -> Column:
    first = values[0]
    if isinstance(first, torch.Tensor):
        if all(
            isinstance(v, torch.Tensor) and v.shape == first.shape and v.dtype == first.dtype
            for v in values
        ):
            return to_numpy(torch.stack(values))
        return [to_numpy(v) if isinstance(v, torch.Tensor) else v for v in values]
    return values


def _join(parts: list[Column]) -> Column:
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    if len(arrays) == len(parts) and len({(a.dtype, a.shape[1:]) for a in arrays}) == 1:
        return np.concatenate(arrays)
    return [value for part in parts for value in _values(part)]


def _values(column: Column) -> list[Any]:
    if isinstance(column, np.ndarray):
        return [column[i, ...] for i in range(len(column))]
    return column


def rows(columns: Mapping[str, Column], length: int) -> list[dict[str, Any]]:
    """Return the dictionary of each batch; tensors have become arrays."""
    values = {name: _values(column) for name, column in columns.items()}
    return [{name: column[i] for name, column in values.items()} for i in range(length)]


def averages(columns: Mapping[str, Column]) -> dict[str, Any]:
    """Average each metric over its batches; what cannot be averaged gives None."""
    result = {}
    for name, column in columns.items():
        if isinstance(column, np.ndarray) and column.dtype.kind in "fiub":
            result[name] = float(np.mean(column))
        else:
            single = [{name: value} for value in _values(column)]
            result[name] = util.make_metrics(None, single)["avg_metrics"][name]
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
                f"{method} must return the same metrics on all ranks: {sorted(first[1])} on rank "
                f"{first[0]}, {sorted(metrics)} on rank {rank}."
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
    except (TypeError, ValueError):  # strings, ragged arrays: the first rank's stands for all
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
    return rows(average_over_ranks(gathered), max(length for length, _ in gathered))


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


def reduce_column(reducer: Reducer, column: Column) -> Any:
    """Reduce one metric over batches; batches may differ in shape."""
    if isinstance(column, np.ndarray):
        return _simple_reduce_metrics(reducer, column)
    arrays = [np.asarray(value) for value in column]
    if len({array.shape for array in arrays}) == 1:
        return _simple_reduce_metrics(reducer, np.stack(arrays))
    return _simple_reduce_metrics(reducer, np.concatenate([array.ravel() for array in arrays]))


def _reduce_metrics(
    distributed: DistributedContext,
    columns: Mapping[str, Column],
    num_batches: int,
    reducers: Mapping[str, Reducer],
) -> dict[str, Any]:
    """Reduce over batches, then over ranks weighed by their batches. The chief gets the result."""
    mine = {}
    for name, column in columns.items():
        try:
            mine[name] = reduce_column(reducers[name], column)
        except (TypeError, ValueError) as e:
            raise TypeError(
                f"The metric {name!r} of evaluate_batch cannot be reduced by {reducers[name]}: "
                f"{e}. Return numbers, or wrap a reducer of your own with context.wrap_reducer."
            ) from e
    if distributed.size == 1:
        return mine
    gathered = distributed.gather((num_batches, mine, dict(reducers)))
    if gathered is None:
        return {}
    filled = [(count, metrics) for count, metrics, _ in gathered if count]
    _common_names(
        "evaluate_batch",
        {rank: metrics for rank, (count, metrics, _) in enumerate(gathered) if count},
    )
    reducers = next(r for count, _, r in gathered if count)
    counts = [count for count, _ in filled]
    return {
        name: _simple_reduce_metrics(
            reducer,
            [metrics[name] for _, metrics in filled],
            counts if reducer == Reducer.AVG else None,
        )
        for name, reducer in reducers.items()
    }
