"""Is `optimizer.step()` called by hand, on gradients that nobody clears? Seen in the first batches.

`context.step_optimizer` clears gradients after the step; in plain torch that is a line of its own,
and leaving it out trains on the sum of the gradients of all batches so far.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer
from torch.utils.hooks import unserializable_hook

from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._context.gradients import parameters_of

logger = logging.getLogger("determined.pytorch")

_BACKWARD_PASSES = 10


class ManualStepCheck:
    """Sees the first steps that bypass the context, and warns of those that would go wrong.

    A parameter counts as cleared if one of the backward passes since the last step found it so: a
    generator's loss adds to the gradients of its discriminator, rightly, before they are cleared.
    Everything is taken off by a backward pass, since a step cannot remove its own hook.
    """

    def __init__(self, context: PyTorchTrialContext, trial: object) -> None:
        self._context = context
        self._trial = trial
        self._num_updates = context._num_updates
        self._has_stepped: set[int] = set()  # optimizers that were stepped by hand
        self._is_cleared: dict[int, bool] = {}  # of parameters with a backward pass since then
        self._is_over = False
        self._handles: list[Any] = []
        if context.distributed.rank == 0 and not context._use_apex:
            self._watch()

    def _watch(self) -> None:
        for index, optimizer in enumerate(self._context.optimizers):
            if not isinstance(optimizer, Optimizer):
                continue  # an object with the same methods, which may have no hooks
            see_step = self._step_hook(index)
            self._handles.append(optimizer.register_step_pre_hook(see_step))
            for parameter in parameters_of(optimizer):
                if parameter.requires_grad:
                    see_gradient = self._gradient_hook(parameter, id(optimizer))
                    handle = parameter.register_hook(see_gradient)  # type: ignore[no-untyped-call]  # untyped in torch
                    self._handles.append(handle)

    def close(self) -> None:
        """Take everything off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _gradient_hook(
        self, parameter: torch.Tensor, optimizer_id: int
    ) -> Callable[[torch.Tensor], None]:
        passes = 0

        def see_gradient(gradient: torch.Tensor) -> None:
            nonlocal passes
            passes += 1
            if self._is_over or passes > _BACKWARD_PASSES:
                self.close()
            elif optimizer_id in self._has_stepped:
                was = self._is_cleared.get(id(parameter), False)
                self._is_cleared[id(parameter)] = was or not _is_filled(parameter.grad)

        # Marked, or pickling the model in these batches would warn of it.
        hook: Callable[[torch.Tensor], None] = unserializable_hook(see_gradient)  # type: ignore[no-untyped-call]  # untyped in torch
        return hook

    def _step_hook(self, index: int) -> Callable[[Optimizer, Any, Any], None]:
        def see_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            if self._num_updates != self._context._num_updates:
                self._num_updates = self._context._num_updates  # through the context
                return
            keys = [id(p) for p in parameters_of(optimizer)]
            seen = [self._is_cleared.pop(key) for key in keys if key in self._is_cleared]
            self._has_stepped.add(id(optimizer))
            problem = self._problem(seen)
            if problem and not self._is_over:
                self._is_over = True
                self._warn(index, optimizer, problem)

        return see_step

    def _problem(self, cleared: list[bool]) -> str:
        if 2 * cleared.count(False) > len(cleared):
            return (
                "its gradients are never cleared, so each batch adds to those of all batches before"
            )
        if self._context._aggregation_frequency > 1:
            return f"aggregation_frequency={self._context._aggregation_frequency} has no effect"
        return ""

    def _warn(self, index: int, optimizer: Optimizer, problem: str) -> None:
        context = _attribute(self._trial, self._context, "context")
        name = _attribute(self._trial, optimizer, "optimizer")
        logger.warning(
            f"Optimizer {index} ({type(optimizer).__name__}) was stepped by hand: {problem}. In "
            f"train_batch, replace loss.backward() and {name}.step() with {context}.backward(loss) "
            f"and {context}.step_optimizer({name}), which also clears the gradients. This is shown "
            "once."
        )


def _is_filled(gradient: torch.Tensor | None) -> bool:
    if gradient is None:
        return False
    if gradient.is_sparse:
        return gradient._nnz() > 0
    return bool(gradient.any())


def _attribute(trial: object, value: object, otherwise: str) -> str:
    """Return how a trial calls something that it has as an attribute."""
    for name, held in vars(trial).items():
        if held is value:
            return f"self.{name}"
    return otherwise
