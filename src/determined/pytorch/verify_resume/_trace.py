"""What `verify_resume` writes down of one run: digests of all that matters, stage by stage."""

from __future__ import annotations

import hashlib
import inspect
import json
import pathlib
import random
import runpy
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from determined.pytorch import _trainer
from determined.pytorch._callback import PyTorchCallback
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._data.order import IndexOrder, SamplerOrder
from determined.pytorch._data.training_data import TrainingData, open_training_data
from determined.pytorch._ranks.ddp import inner_module
from determined.pytorch._schedule import Batch

_SEED = 0

Event = dict[str, Any]


class Trace:
    """The events of a run, each named after the stage that has just ended."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.indices: list[list[Any]] = []  # of each batch of this process, where an order has them
        self.batch = -1
        self.cut = -1
        self.attributes: dict[str, str] = {}  # of the trial, at the cut
        self.note_attributes: Callable[[], dict[str, str]] = dict

    def add(self, stage: str, values: dict[str, Any], samples: list[str] | None = None) -> None:
        """Record a stage with what it gave and the random states after it."""
        digests = {name: _digest(value) for name, value in (values | _random_states()).items()}
        event = {"stage": stage, "batch": self.batch, "samples": samples, "digests": digests}
        self.events.append(event)


class _WatchedData:
    """Training data that records each batch, and the random states around it."""

    def __init__(self, data: TrainingData, trace: Trace, start: int) -> None:
        self._data = data
        self._trace = trace
        self._num_fetched = 0
        trace.batch = start - 1

    def __next__(self) -> Any:
        trace = self._trace
        trace.batch += 1
        trace.add("before", {})
        if trace.batch == trace.cut:
            trace.attributes = trace.note_attributes()
        batch = next(self._data)
        known = trace.indices[self._num_fetched :]
        samples = [repr(index) for index in known[0]] if known else None
        trace.add("fetching", _leaves("batch", batch), samples)
        self._num_fetched += 1
        return batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._data, name)


class _First(PyTorchCallback):
    """Comes before the user's callbacks: it sees what train_batch and validation did."""

    def __init__(self, trace: Trace, context: PyTorchTrialContext) -> None:
        self._trace = trace
        self._context = context

    def on_training_batch_end(
        self, epoch_idx: int, batch_idx: int, metrics: dict[str, Any]
    ) -> None:
        values = {f"metric {name}": value for name, value in metrics.items()}
        for index, optimizer in enumerate(self._context.optimizers):
            rates = [group["lr"] for group in optimizer.param_groups]
            values[f"learning rate of optimizer {index}"] = rates
        self._trace.add("train_batch", values)

    def on_validation_start(self) -> None:
        self._trace.add("before validation", {})

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        self._trace.add("validation", {f"metric {name}": value for name, value in metrics.items()})


class _Last(PyTorchCallback):
    """Comes after the user's callbacks: it sees what they did."""

    def __init__(self, trace: Trace, context: PyTorchTrialContext, stop_after: int | None) -> None:
        self._trace = trace
        self._context = context
        self._stop_after = stop_after

    def on_training_batch_start(self, epoch_idx: int, batch_idx: int, batch: Any) -> None:
        self._trace.add("on_training_batch_start", {})

    def on_training_batch_end(
        self, epoch_idx: int, batch_idx: int, metrics: dict[str, Any]
    ) -> None:
        self._trace.add("on_training_batch_end", {})
        if self._stop_after == batch_idx + 1:
            self._context._core._backend.request_preemption()

    def on_validation_start(self) -> None:
        self._trace.add("on_validation_start", {})

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        self._trace.add("on_validation_end", {})

    def on_trial_shutdown(self) -> None:
        values: dict[str, Any] = {}
        for index, model in enumerate(self._context.models):
            for name, tensor in inner_module(model).state_dict().items():
                values[f"weight {name} of model {index}"] = tensor
        for index, optimizer in enumerate(self._context.optimizers):
            values |= _leaves(f"optimizer {index}", optimizer.state_dict())
        self._trace.add("end", values)


def _random_states() -> dict[str, Any]:
    return {
        "the random state of torch": torch.get_rng_state(),
        "the random state of numpy": np.random.get_state(legacy=True),
        "the random state of Python": random.getstate(),
    }


def _leaves(path: str, value: Any) -> dict[str, Any]:
    """Return the values inside containers, each with the path to it."""
    if isinstance(value, dict):
        inner = [_leaves(f"{path}[{key!r}]", entry) for key, entry in value.items()]
    elif isinstance(value, (list, tuple)):
        inner = [_leaves(f"{path}[{index}]", entry) for index, entry in enumerate(value)]
    else:
        return {path: value}
    return {name: leaf for leaves in inner for name, leaf in leaves.items()}


def _digest(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    data = value.tobytes() if isinstance(value, (np.ndarray, np.generic)) else repr(value).encode()
    return hashlib.sha256(data).hexdigest()[:16]


def unsaved_attributes(trial: object, context: PyTorchTrialContext) -> dict[str, str]:
    """Return digests of what a trial keeps to itself: no checkpoint has it."""
    modules = {id(m) for model in context.models for m in model.modules()}
    wrapped = {*modules, *map(id, context.optimizers), id(context._scaler)}
    wrapped |= {id(scheduler._scheduler) for scheduler in context.lr_schedulers}
    wrapped |= {id(registered.reducer) for registered in context._wrapped_reducers}
    found = {}
    for name, value in vars(trial).items():
        kind = type(value).__name__
        if id(value) in wrapped or value is context:
            continue
        if isinstance(value, (torch.nn.Module, torch.optim.Optimizer)) or _is_scheduler(value):
            what, state = f"self.{name} ({kind}, not wrapped)", value.state_dict()
        elif isinstance(value, (bool, int, float, str, list, dict, tuple, torch.Tensor)):
            what, state = f"self.{name}", value
        elif isinstance(value, (np.ndarray, torch.Generator, np.random.Generator)):
            what, state = f"self.{name}", _state_of(value)
        else:
            continue
        leaves = _leaves("", state)
        found[what] = _digest([f"{path}={_digest(leaf)}" for path, leaf in leaves.items()])
    return found


def _is_scheduler(value: Any) -> bool:
    return isinstance(value, torch.optim.lr_scheduler.LRScheduler)


def _state_of(value: Any) -> Any:
    if isinstance(value, torch.Generator):
        return value.get_state()
    return value.bit_generator.state if isinstance(value, np.random.Generator) else value


# Running a script under the eyes of a trace.


def run_part(plan: dict[str, Any], script: str, arguments: list[str]) -> None:
    """Run the script with `init` and `fit` bent to one part of the proof; writes the trace."""
    init, fit, open_data = _trainer.init, _trainer.Trainer.fit, open_training_data
    trace = Trace()

    def bent_init(**options: Any) -> Any:
        if options.get("seed") is None:
            options["seed"] = _SEED
        options.update(checkpoint_storage=plan["storage"], enable_tensorboard_logging=False)
        return init(**options)

    def bent_open(loader: Any, **position: Any) -> _WatchedData:
        return _WatchedData(open_data(loader, **position), trace, position["start"])

    def bent_fit(trainer: _trainer.Trainer, *positional: Any, **options: Any) -> None:
        options = inspect.signature(fit).bind(trainer, *positional, **options).arguments
        del options["self"]
        options.update(
            max_length=Batch(plan["batches"]),
            latest_checkpoint=plan["checkpoint"],
            checkpoint_policy="none",
            checkpoint_period=None,
            progress=False,
        )
        _add_callbacks(trainer, trace, plan["stop_after"])
        trace.cut = plan["cut"]
        trace.note_attributes = lambda: unsaved_attributes(trainer._trial, trainer._context)
        fit(trainer, **options)
        record = {
            "events": trace.events,
            "checkpoint": trainer.latest_checkpoint,
            "attributes": trace.attributes,
        }
        pathlib.Path(plan["trace"]).write_text(json.dumps(record))
        raise SystemExit(0)  # what the script does after training is not part of the proof

    _replace_everywhere(init, bent_init)
    _replace_everywhere(open_data, bent_open)
    for order in (IndexOrder, SamplerOrder):
        _record_indices(order, trace.indices)
    setattr(_trainer.Trainer, "fit", bent_fit)  # noqa: B010  # in this process only
    sys.argv = [script, *arguments]
    sys.path[0] = str(pathlib.Path(script).resolve().parent)
    runpy.run_path(script, run_name="__main__")


def _add_callbacks(trainer: _trainer.Trainer, trace: Trace, stop_after: int | None) -> None:
    trial, context = trainer._trial, trainer._context
    build_callbacks = trial.build_callbacks
    trial.build_callbacks = lambda: {  # type: ignore[method-assign]  # of this object only
        "verify_resume first": _First(trace, context),
        **build_callbacks(),
        "verify_resume last": _Last(trace, context, stop_after),
    }


def _record_indices(order: Any, indices: list[list[Any]]) -> None:
    batches: Callable[..., Iterator[Any]] = order.batches

    def recorded(self: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        for batch in batches(self, *args, **kwargs):
            indices.append(batch.tolist() if isinstance(batch, torch.Tensor) else list(batch))
            yield batch

    order.batches = recorded


def _replace_everywhere(old: object, new: object) -> None:
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("determined"):
            for name, value in list(vars(module).items()):
                if value is old:
                    setattr(module, name, new)
