"""What `verify_resume` records of one run: digests of all state, stage by stage."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

from determined.pytorch._callback import PyTorchCallback
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._data.fetch import as_list
from determined.pytorch._instrumentation.observer import Observer, Part
from determined.pytorch._trial import PyTorchTrial
from determined.pytorch.verify_resume._digests import (
    digest,
    is_small,
    leaves,
    random_states,
    state_of,
    unsaved_attributes,
)
from determined.pytorch.verify_resume._interruptions import StopPoint, StopPoints

P = ParamSpec("P")
R = TypeVar("R")

Event = dict[str, Any]


class Trace(Observer):
    """The events of a run, each named after the stage that has just ended."""

    def __init__(
        self, trial: PyTorchTrial, context: PyTorchTrialContext, stop: StopPoint | None
    ) -> None:
        self._trial = trial
        self._context = context
        self._given: dict[str, PyTorchCallback] = {}
        self._has_small_state = is_small(context)
        self._indices: deque[list[Any]] = deque()  # of batches to come, where an order has them
        self.points = StopPoints(context, stop, lambda: context._core._backend.request_preemption())
        self.events: list[Event] = []
        self.attributes: dict[str, dict[str, str]] = {}  # of the trial, by batch

    def add(self, stage: str, values: dict[str, Any], samples: list[str] | None = None) -> None:
        """Record a stage with what it gave and the random states after it."""
        digests = {name: digest(value) for name, value in (values | random_states()).items()}
        event = {"stage": stage, "batch": self._batch, "samples": samples, "digests": digests}
        self.events.append(event)

    def watch(self, part: Part, call: Callable[P, R]) -> Callable[P, R]:
        if isinstance(getattr(call, "__self__", None), (_First, _Last)):
            return call  # nobody can be interrupted in what is not there without us
        call = self.points.watch(part, call)
        if part == "data":
            return self._fetching(call)
        return self._validating(call) if part == "validation" else call

    def callbacks(self, given: dict[str, PyTorchCallback]) -> dict[str, PyTorchCallback]:
        self._given = given
        return {
            "verify_resume first": _First(self, self._context),
            **given,
            "verify_resume last": _Last(self),
        }

    def indices(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            self._indices.append(as_list(batch))
            yield batch

    def end(self) -> None:
        """Record all state."""
        self.add("end", state_of(self._context, self._given))

    @property
    def _batch(self) -> int:
        batch_idx = self._context._current_batch_idx
        return -1 if batch_idx is None else batch_idx

    def _state(self) -> dict[str, Any]:
        return state_of(self._context, self._given) if self._has_small_state else {}

    def _fetching(self, fetch: Callable[P, R]) -> Callable[P, R]:
        """Record each batch, and all state before it."""

        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            self.add("before", self._state())
            self.attributes[str(self._batch)] = unsaved_attributes(self._trial, self._context)
            batch = fetch(*args, **kwargs)
            samples = list(map(repr, self._indices.popleft())) if self._indices else None
            self.add("fetching", dict(leaves("batch", batch)), samples)
            return batch

        return call

    def _validating(self, validate: Callable[P, R]) -> Callable[P, R]:
        """Record the state of training, which a validation leaves alone."""

        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            self.add("before validation", self._state())
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

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def on_training_batch_start(self, epoch_idx: int, batch_idx: int, batch: Any) -> None:
        self._trace.add("on_training_batch_start", {})

    def on_training_batch_end(
        self, epoch_idx: int, batch_idx: int, metrics: dict[str, Any]
    ) -> None:
        self._trace.add("on_training_batch_end", {})

    def on_validation_start(self) -> None:
        self._trace.add("on_validation_start", {})

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        self._trace.add("on_validation_end", {})

    def on_trial_shutdown(self) -> None:
        self._trace.end()
