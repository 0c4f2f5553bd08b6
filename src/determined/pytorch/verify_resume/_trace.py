"""What `verify_resume` records of one run: digests of all state, stage by stage."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import random
import runpy
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch

from determined.pytorch._callback import PyTorchCallback
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._data.order import as_list
from determined.pytorch._observer import Observer, Part
from determined.pytorch._overrides import Overrides, overriding
from determined.pytorch._plan import NEVER, FitPlan
from determined.pytorch._ranks.ddp import inner_module
from determined.pytorch._schedule import Batch
from determined.pytorch._trial import PyTorchTrial

P = ParamSpec("P")
R = TypeVar("R")

_SEED = 0

Event = dict[str, Any]


class Trace(Observer):
    """The events of a run, each named after the stage that has just ended."""

    def __init__(
        self, trial: PyTorchTrial, context: PyTorchTrialContext, cut: int, stop_after: int | None
    ) -> None:
        self._trial = trial
        self._context = context
        self._cut = cut
        self._stop_after = stop_after
        self._indices: deque[list[Any]] = deque()  # of batches to come, where an order has them
        self.events: list[Event] = []
        self.attributes: dict[str, str] = {}  # of the trial, at the cut

    def add(self, stage: str, values: dict[str, Any], samples: list[str] | None = None) -> None:
        """Record a stage with what it gave and the random states after it."""
        digests = {name: _digest(value) for name, value in (values | _random_states()).items()}
        event = {"stage": stage, "batch": self._batch, "samples": samples, "digests": digests}
        self.events.append(event)

    def watch(self, part: Part, call: Callable[P, R]) -> Callable[P, R]:
        if part == "data":
            return self._fetching(call)
        return self._validating(call) if part == "validation" else call

    def callbacks(self, given: dict[str, PyTorchCallback]) -> dict[str, PyTorchCallback]:
        return {
            "verify_resume first": _First(self, self._context),
            **given,
            "verify_resume last": _Last(self, self._context, self._stop_after),
        }

    def indices(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            self._indices.append(as_list(batch))
            yield batch

    @property
    def _batch(self) -> int:
        batch_idx = self._context._current_batch_idx
        return -1 if batch_idx is None else batch_idx

    def _fetching(self, fetch: Callable[P, R]) -> Callable[P, R]:
        """Record each batch, and the random states around it."""

        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            self.add("before", {})
            if self._batch == self._cut:
                self.attributes = unsaved_attributes(self._trial, self._context)
            batch = fetch(*args, **kwargs)
            samples = list(map(repr, self._indices.popleft())) if self._indices else None
            self.add("fetching", _leaves("batch", batch), samples)
            return batch

        return call

    def _validating(self, validate: Callable[P, R]) -> Callable[P, R]:
        """Record the random states of training, which a validation does not share."""

        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            self.add("before validation", {})
            return validate(*args, **kwargs)

        return call


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


class _Part(Overrides):
    """Bends a script to one part of the proof."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._plan = plan

    def init(self, options: dict[str, Any]) -> dict[str, Any]:
        if options.get("seed") is None:
            options = {**options, "seed": _SEED}
        storage = self._plan["storage"]
        return {**options, "checkpoint_storage": storage, "enable_tensorboard_logging": False}

    def fit(self, plan: FitPlan) -> FitPlan:
        return dataclasses.replace(
            plan,
            max_length=Batch(self._plan["batches"]),
            latest_checkpoint=self._plan["checkpoint"],
            checkpoint_policy="none",
            checkpoint_period=NEVER,
            progress=False,
        )

    def observer(self, trial: PyTorchTrial, context: PyTorchTrialContext) -> Trace:
        self._trace = Trace(trial, context, self._plan["cut"], self._plan["stop_after"])
        return self._trace

    def after_fit(self, latest_checkpoint: str | None) -> None:
        """Write the trace. What the script does after training is not part of the proof."""
        record = {
            "events": self._trace.events,
            "checkpoint": latest_checkpoint,
            "attributes": self._trace.attributes,
        }
        pathlib.Path(self._plan["trace"]).write_text(json.dumps(record))
        raise SystemExit(0)


def run_part(plan: dict[str, Any], script: str, arguments: list[str]) -> None:
    """Run the script with `init` and `fit` bent to one part of the proof; writes the trace."""
    sys.argv = [script, *arguments]
    sys.path[0] = str(pathlib.Path(script).resolve().parent)
    with overriding(_Part(plan)):
        runpy.run_path(script, run_name="__main__")
