"""One validation pass: the evaluate method over the loader, models in evaluation mode."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from determined.pytorch._callback import Hooks
from determined.pytorch._checks.signatures import evaluate_call, of_set
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._data.errors import naming_failed_batches
from determined.pytorch._data.seed import rng_state, set_rng_state
from determined.pytorch._data.validation_parts import ValidationParts
from determined.pytorch._metrics.batch_metrics import (
    BatchMetrics,
    Rows,
    _convert_metrics_to_numpy,
    _prepare_metrics_reducers,
    _reduce_metrics,
)
from determined.pytorch._ranks.ddp import validating
from determined.pytorch._ranks.fsdp import is_sharded, reshard
from determined.pytorch._ranks.lockstep import in_step, kept_as_they_are
from determined.pytorch._trial import PyTorchTrial
from determined.util import is_overridden

logger = logging.getLogger("determined.pytorch")


class Interrupted(Exception):
    """A stop was asked for in the middle of a validation."""


def uses_evaluate_batch(trial: PyTorchTrial) -> bool:
    """Say which of the two evaluate methods the trial overrides."""
    return is_overridden(trial.evaluate_batch, PyTorchTrial)


def check_limit(limit: int | None, trial: PyTorchTrial) -> None:
    """Refuse to count batches that the trial's own loop goes through."""
    if limit is not None and not uses_evaluate_batch(trial):
        raise ValueError(
            "`limit_validation_batches` counts the batches of evaluate_batch, but "
            f"{type(trial).__name__} overrides evaluate_full_dataset, which iterates over the "
            "data itself: limit it there."
        )


def metric_name(set_name: str | None, metric: str) -> str:
    """Return the name of a metric of one of several validation sets."""
    return metric if set_name is None else f"{set_name}/{metric}"


class Evaluation:
    """Runs `evaluate_batch` or `evaluate_full_dataset`; every rank gets here in step."""

    def __init__(
        self,
        trial: PyTorchTrial,
        context: PyTorchTrialContext,
        sets: Mapping[str | None, Any],
        hooks: Hooks,
        limit: int | None = None,
    ) -> None:
        self._trial = trial
        self._context = context
        self._sets = sets
        self._hooks = hooks
        self._limit = limit
        self._warned_of_length = False
        self.num_records = 0
        self.num_batches = 0

    def run(self, stop_asked: Callable[[], bool]) -> dict[str, Any]:
        """Validate between the hooks for it, with the models in evaluation mode."""
        context = self._context
        context.reset_reducers()
        with in_evaluation(context.models), torch.no_grad(), validating(context.models):
            self._hooks.call("on_validation_start")
            metrics: dict[str, Any] = {}
            for position, (name, loader) in enumerate(self._sets.items()):
                if position > 0:  # what a hook gave a reducer belongs to the first set
                    context.reset_reducers()
                found = self._measure(name, loader, stop_asked)
                metrics |= {metric_name(name, metric): value for metric, value in found.items()}
            if self._hooks.of("on_validation_end"):
                metrics = context.distributed.broadcast(metrics)
                self._hooks.call("on_validation_end", metrics)
        return metrics

    def _measure(
        self, set_name: str | None, loader: Any, stop_asked: Callable[[], bool]
    ) -> dict[str, Any]:
        """Return the reduced metrics on the chief, and only those of custom reducers elsewhere."""
        if uses_evaluate_batch(self._trial):
            metrics = self._by_batch(set_name, loader, stop_asked)
        else:
            metrics = self._full_dataset(set_name, loader)
        metrics.update(self._context.reduce_metrics(for_training=False))
        for name in metrics:
            if not isinstance(name, str):
                raise TypeError(f"The names of validation metrics must be strings, got {name!r}.")
        return metrics

    def _by_batch(
        self, set_name: str | None, loader: Any, stop_asked: Callable[[], bool]
    ) -> dict[str, Any]:
        self._hooks.call("on_validation_epoch_start")
        evaluate = evaluate_call(self._trial.evaluate_batch, set_name)
        outputs, batch_lengths = self._evaluate_batches(evaluate, loader, stop_asked)
        reshard(self._context.models)  # callbacks that come next may change weights
        distributed = self._context.distributed
        counts = distributed.allgather((sum(batch_lengths), len(outputs)))
        num_batches = sum(batches for _, batches in counts)
        self.num_records += sum(records for records, _ in counts)
        self.num_batches += num_batches
        if num_batches == 0:
            which = "" if set_name is None else f" of {set_name!r}"
            raise RuntimeError(
                f"The validation loader{which} gave no batches. Check that the dataset of "
                "build_validation_data_loader is not empty (with drop_last, not smaller than a "
                "batch)."
            )
        columns = outputs.columns()
        if self._hooks.of("on_validation_epoch_end"):
            edited = list(Rows(columns, len(outputs)))
            self._hooks.call("on_validation_epoch_end", edited)
            columns = {name: [row[name] for row in edited] for name in columns}
        reducer = self._trial.evaluation_reducer()
        if set_name is not None and isinstance(reducer, dict):  # sets may have different metrics
            reducer = {name: reducer[name] for name in columns if name in reducer}
        reducers = _prepare_metrics_reducers(reducer, columns.keys()) if len(outputs) else {}
        return _reduce_metrics(distributed, columns, len(outputs), reducers, batch_lengths)

    def _evaluate_batches(
        self, evaluate: Callable[[Any, int], Any], loader: Any, stop_asked: Callable[[], bool]
    ) -> tuple[BatchMetrics, list[int]]:
        context = self._context
        outputs = BatchMetrics()
        batch_lengths: list[int] = []
        names: set[str] | None = None
        for batch_idx, (batch, counts) in enumerate(self._batches(loader)):
            if context.experimental._auto_to_device:
                batch = context.to_device(batch)
            if not counts:
                with kept_as_they_are(r.reducer for r in context._wrapped_reducers):
                    evaluate(batch, batch_idx)
                if batch_idx + 1 == self._limit:
                    break
                continue
            batch_lengths.append(self._batch_length(batch))
            metrics = evaluate(batch, batch_idx)
            if not isinstance(metrics, dict):
                raise TypeError(
                    "evaluate_batch must return a dictionary of metrics, got "
                    f"{type(metrics).__name__} from batch {batch_idx}."
                )
            if names is None:
                names = set(metrics)
            elif names != set(metrics):
                raise ValueError(
                    "evaluate_batch must return the same metrics for every batch: at first "
                    f"{sorted(names, key=str)}, from batch {batch_idx} {sorted(metrics, key=str)}."
                )
            outputs.append(metrics)
            if batch_idx + 1 == self._limit:
                break
            if stop_asked():
                raise Interrupted
        return outputs, batch_lengths

    def _batches(self, loader: Any) -> Iterable[tuple[Any, bool]]:
        batches = naming_failed_batches(
            loader, "The validation data (build_validation_data_loader)"
        )
        if any(map(is_sharded, self._context.models)):
            return in_step(batches, self._context.distributed)
        return ((batch, True) for batch in batches)

    def _batch_length(self, batch: Any) -> int:
        try:
            return self._trial.get_batch_length(batch)
        except (TypeError, ValueError) as e:
            if not self._warned_of_length:
                self._warned_of_length = True
                logger.warning(
                    f"get_batch_length failed on a validation batch ({e}); records are not "
                    "counted. Override get_batch_length for batches of your own type."
                )
            return 0

    def _full_dataset(self, set_name: str | None, loader: Any) -> dict[str, Any]:
        if self._context.distributed.rank != 0:
            return {}
        evaluate = of_set(self._trial.evaluate_full_dataset, set_name)
        metrics = evaluate(data_loader=loader)
        if not isinstance(metrics, dict):
            raise TypeError(
                "evaluate_full_dataset must return a dictionary of metrics, got "
                f"{type(metrics).__name__}."
            )
        return _convert_metrics_to_numpy(metrics)


def try_validation(
    trial: PyTorchTrial,
    context: PyTorchTrialContext,
    sets: Mapping[str | None, Any],
    num_batches: int,
) -> dict[str, Any]:
    """Validate a few batches, and leave no trace: neither in hooks nor in what is random."""
    evaluation = Evaluation(trial, context, sets, Hooks({}), limit=num_batches)
    with _without_trace(context, sets):
        return evaluation.run(lambda: False)


@contextlib.contextmanager
def _without_trace(context: PyTorchTrialContext, sets: Mapping[str | None, Any]) -> Iterator[None]:
    """Undo what the block does to reducers, random states, and what loaders remember."""
    reducers = [registered.reducer for registered in context._wrapped_reducers]
    random_state = rng_state()
    with kept_as_they_are(reducers), ValidationParts(sets.values()):
        yield
    set_rng_state(random_state)


# Training and evaluation modes.


def begin_training(models: Iterable[nn.Module]) -> None:
    """Put models into training mode, as pretrained ones come in evaluation mode.

    Frozen ones, none of whose parameters requires a gradient, keep the mode that the trial chose:
    a reference model has no dropout.
    """
    for model in models:
        parameters = list(model.parameters())
        if not parameters or any(p.requires_grad for p in parameters):
            model.train()


def end_training(models: Iterable[nn.Module]) -> None:
    """Leave models in evaluation mode, ready to be used."""
    for model in models:
        model.eval()


@contextlib.contextmanager
def in_evaluation(models: Iterable[nn.Module]) -> Iterator[None]:
    """Have models in evaluation mode inside the block, and each part in its own mode after it."""
    models = list(models)
    modes = {module: module.training for model in models for module in model.modules()}
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for module, is_training in modes.items():
            module.training = is_training
