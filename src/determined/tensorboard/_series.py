"""Which points a report puts into TensorBoard: names, steps, and what counts as a scalar."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from determined.util import is_numerical_scalar

if TYPE_CHECKING:
    from determined.tensorboard._events import ScalarEvents

BatchMetrics = Sequence[Mapping[str, Any]] | Mapping[str, Any]
Series = tuple[str, Sequence[Any], Sequence[int]]


def log_training(
    events: ScalarEvents,
    batches_trained: int,
    avg_metrics: Mapping[str, Any],
    batch_metrics: BatchMetrics | None = None,
) -> None:
    """Log a training report.

    `batch_metrics` has a mapping per batch or, faster, is one mapping from each name to a numpy
    array with an entry per batch.
    """
    for series in training_series(batches_trained, avg_metrics, batch_metrics):
        events.add(*series)


def log_validation(events: ScalarEvents, batches_trained: int, metrics: Mapping[str, Any]) -> None:
    """Log a validation report."""
    for series in validation_series(batches_trained, metrics):
        events.add(*series)


def training_series(
    batches_trained: int, avg_metrics: Mapping[str, Any], batch_metrics: BatchMetrics | None = None
) -> Iterator[Series]:
    """Yield (tag, values, steps): the batch metrics, then the averages without one."""
    batch_metrics = batch_metrics or {}
    if isinstance(batch_metrics, Mapping):
        yield from _columns(batches_trained, batch_metrics)
        names = set(batch_metrics)
    else:
        yield from _rows(batches_trained, batch_metrics)
        names = {name for metrics in batch_metrics for name in metrics}
    averages = ((name, value) for name, value in avg_metrics.items() if name not in names)
    yield from _points(batches_trained, averages)


def validation_series(batches_trained: int, metrics: Mapping[str, Any]) -> Iterator[Series]:
    """Yield (tag, values, steps) of a validation; names that do not start with `val` get `val_`."""
    named = (
        (name if name.startswith("val") else f"val_{name}", value)
        for name, value in metrics.items()
    )
    yield from _points(batches_trained, named)


def _columns(batches_trained: int, batch_metrics: Mapping[str, Any]) -> Iterator[Series]:
    for name, column in batch_metrics.items():
        if column.ndim == 1 and column.dtype.kind in "biuf":
            yield _tag(name), column, range(batches_trained - len(column), batches_trained)


def _rows(batches_trained: int, batch_metrics: Sequence[Mapping[str, Any]]) -> Iterator[Series]:
    points: dict[str, tuple[list[Any], list[int]]] = {}
    for step, metrics in enumerate(batch_metrics, batches_trained - len(batch_metrics)):
        for name, value in metrics.items():
            if is_numerical_scalar(value):
                values, steps = points.setdefault(name, ([], []))
                values.append(value)
                steps.append(step)
    for name, (values, steps) in points.items():
        yield _tag(name), values, steps


def _points(step: int, metrics: Iterable[tuple[str, Any]]) -> Iterator[Series]:
    for name, value in metrics:
        if is_numerical_scalar(value):
            yield _tag(name), [value], [step]


def _tag(name: str) -> str:
    return f"Determined/{name}"
