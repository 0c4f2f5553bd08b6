"""The stages of each batch, finer than a proof of resuming needs them: loss, gradients, step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, Protocol, TypeVar

import torch

from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._instrumentation.observer import Part
from determined.pytorch._ranks.ddp import inner_module
from determined.pytorch._trial import PyTorchTrial
from determined.pytorch.verify_resume._digests import digest, leaves, random_states
from determined.pytorch.verify_resume._trace import Event, Trace

P = ParamSpec("P")
R = TypeVar("R")

FORWARD, BACKWARD, BEFORE_STEP, STEP, SCHEDULER = (
    "forward",
    "backward",
    "before step",
    "step",
    "scheduler",
)
_WITH_STATE = ("on_training_batch_start", "train_batch", "on_training_batch_end")


class Partner(Protocol):
    """The other run, which goes through the same stages."""

    def compare(self, event: Event, values: Mapping[str, Any]) -> bool:
        """Compare a stage with the other run's; False if there is nothing more to compare."""


class StageTrace(Trace):
    """Shows each stage to a partner, and asks to stop once it has seen enough."""

    def __init__(self, trial: PyTorchTrial, context: PyTorchTrialContext, partner: Partner) -> None:
        super().__init__(trial, context, None)
        self._partner = partner
        self._is_over = False
        for index, optimizer in enumerate(context.optimizers):
            optimizer.register_step_pre_hook(self._before_step(index))
            optimizer.register_step_post_hook(self._after_step(index))

    def add(self, stage: str, values: dict[str, Any], samples: list[str] | None = None) -> None:
        if self._is_over:
            return
        if stage in _WITH_STATE and self._has_small_state:
            values = self._weights() | values | self._groups() | self._callback_states()
        values = values | random_states()
        digests = {name: digest(value) for name, value in values.items()}
        event = {"stage": stage, "batch": self._batch, "samples": samples, "digests": digests}
        if not self._partner.compare(event, values):
            self._is_over = True
            self._context._core._backend.request_preemption()

    def watch(self, part: Part, call: Callable[P, R]) -> Callable[P, R]:
        call = super().watch(part, call)
        if part == "backward":
            return self._differentiating(call)
        return self._scheduling(call) if part == "scheduler" else call

    # What there is.

    def _weights(self) -> dict[str, Any]:
        if not self._has_small_state:
            return {}
        found: dict[str, Any] = {}
        for index, model in enumerate(self._context.models):
            module = inner_module(model)
            for name, tensor in (*module.named_parameters(), *module.named_buffers()):
                found[f"weight {name} of model {index}"] = tensor
        return found

    def _gradients(self) -> dict[str, Any]:
        return {
            f"gradient {name} of model {index}": parameter.grad
            for index, model in enumerate(self._context.models)
            for name, parameter in inner_module(model).named_parameters()
        }

    def _groups(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for index, optimizer in enumerate(self._context.optimizers):
            groups = [
                {k: v for k, v in group.items() if k != "params"}
                for group in optimizer.param_groups
            ]
            found |= leaves(f"optimizer {index}['param_groups']", groups)
        return found

    def _callback_states(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, callback in self._given.items():
            found |= leaves(f"callback {name!r}", callback.state_dict())
        return {name: value for name, value in found.items() if not callable(value)}

    # When.

    def _differentiating(self, call: Callable[P, R]) -> Callable[P, R]:
        def differentiate(*args: P.args, **kwargs: P.kwargs) -> R:
            loss = next((a for a in args if isinstance(a, torch.Tensor)), None)
            # Random states first: a draw too many is the cause, the loss after it the effect.
            self.add(FORWARD, self._weights() | random_states() | {"loss": loss})
            result = call(*args, **kwargs)
            self.add(BACKWARD, self._gradients())
            return result

        return differentiate

    def _scheduling(self, call: Callable[P, R]) -> Callable[P, R]:
        def step(*args: P.args, **kwargs: P.kwargs) -> R:
            result = call(*args, **kwargs)
            values: dict[str, Any] = self._groups()
            for index, scheduler in enumerate(self._context.lr_schedulers):
                values |= leaves(f"scheduler {index}", scheduler.state_dict())
            self.add(SCHEDULER, {k: v for k, v in values.items() if not callable(v)})
            return result

        return step

    def _before_step(self, index: int) -> Callable[..., None]:
        def before(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            self.add(BEFORE_STEP, self._gradients() | self._groups())

        return before

    def _after_step(self, index: int) -> Callable[..., None]:
        def after(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            state = dict(leaves(f"optimizer {index}", optimizer.state_dict()))
            self.add(STEP, self._weights() | state)

        return after
