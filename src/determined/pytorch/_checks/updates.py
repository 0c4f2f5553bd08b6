"""Does training change the weights? Checked once, after the first updates.

Silent about what is meant to be so: frozen tensors, a learning rate of 0, rates that a scheduler
warms up, tensors whose gradient is zero at first only (LoRA, zero-initialized gates).
"""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from determined.errors import InvalidExperimentException
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._context.gradients import parameters_of
from determined.pytorch._ranks.ddp import inner_module, is_bypassed
from determined.pytorch._ranks.fsdp import is_dtensor
from determined.pytorch._schedule import counted

logger = logging.getLogger("determined.pytorch")

_BATCHES = 10  # some trials train a model every few batches only
_SHOWN = 5
_ENOUGH_UPDATES = 3  # behind two factors that begin at zero, the third update has a gradient
_FEW_NUMBERS = 1024  # tensors of this size are kept, to see whether they move
_NEVER = 2**63


class Check(Protocol):
    """Looks at a run in its first batches; `check_at` is the count of batches for its next look."""

    check_at: int

    def check(self, batches_trained: int) -> None: ...


class Checks:
    """Several checks as one; each looks when it is due, or when training ends before that."""

    def __init__(self, *checks: Check) -> None:
        self._checks = checks

    @property
    def check_at(self) -> int:
        """The next count of batches at which one of them looks."""
        return min(check.check_at for check in self._checks)

    def check(self, batches_trained: int) -> None:
        """Have those look that are due, or all if none is: then training has ended."""
        has_ended = batches_trained < self.check_at
        for check in self._checks:
            if has_ended or batches_trained >= check.check_at:
                check.check(batches_trained)


class FirstUpdateCheck:
    """Does something when the first updates are done, and once more a few batches later."""

    def __init__(self, context: PyTorchTrialContext, start: int, then: Callable[[], None]) -> None:
        window = context._aggregation_frequency
        self._then = then
        self._start = start
        self._next = [-(-(start + count) // window) * window for count in (1, _BATCHES)]
        self.check_at = self._next.pop(0)

    def check(self, batches_trained: int) -> None:
        """Do it, unless nothing was trained."""
        self.check_at = self._next.pop(0) if self._next else _NEVER
        if batches_trained > self._start:
            self._then()


class UpdateCheck:
    """Sees which parameters the first updates reach, and warns of those that they do not."""

    def __init__(self, context: PyTorchTrialContext, batches_trained: int) -> None:
        self._context = context
        self._start = batches_trained
        self._versions = {id(p): p._version for p in self._parameters()}
        self._reached: set[int] = set()  # parameters that a step found with a gradient
        window = context._aggregation_frequency
        self.check_at = -(-(batches_trained + max(_BATCHES, window)) // window) * window
        self._steps: collections.Counter[int] = collections.Counter()  # of optimizers, by id
        self._seen: dict[int, str] = {}  # parameters whose gradients were only zero or not finite
        self._useful: set[int] = set()  # parameters with a gradient to learn from
        self._small = {id(p): p.detach().clone() for p in self._parameters() if _is_small(p)}
        context._notify_of_steps(self._see_step)

    def check(self, batches_trained: int) -> None:
        """Warn of what has not changed, once; before that is known, do nothing."""
        context = self._context
        if context._on_step is None or batches_trained == self._start:
            return
        context._notify_of_steps(None)
        self.check_at = _NEVER
        window = context._aggregation_frequency
        no_window_ended = batches_trained // window == self._start // window
        if no_window_ended or context._use_apex or context.distributed.rank != 0:
            return
        if problem := self._problem():
            logger.warning(
                f"After {counted(batches_trained - self._start, 'batch')}: {problem} This is "
                "shown once."
            )

    def close(self) -> None:
        """Let go of the context."""
        self._context._notify_of_steps(None)

    def _see_step(self, optimizer: Optimizer) -> None:
        self._steps[id(optimizer)] += 1
        self._see_gradients([p for p in parameters_of(optimizer) if p.grad is not None])
        for index, model in enumerate(self._context.models):
            if is_bypassed(model) and any(id(p) in self._reached for p in model.parameters()):
                raise InvalidExperimentException(
                    f"Model {index} ({type(inner_module(model)).__name__}) got gradients, but "
                    "not through the wrapped model that context.wrap_model returned, so each "
                    "rank would train its own weights. Keep the result, self.model = "
                    "context.wrap_model(model), and call self.model(...)."
                )

    def _see_gradients(self, parameters: list[torch.Tensor]) -> None:
        self._reached.update(map(id, parameters))
        unknown = [p for p in parameters if id(p) not in self._useful]
        reasons = _why_useless([p.grad for p in unknown if p.grad is not None])
        for parameter, useless in zip(unknown, reasons, strict=True):
            if useless:
                self._seen[id(parameter)] = useless
            else:
                self._useful.add(id(parameter))

    def _problem(self) -> str:
        """Return what does not learn and why, or nothing."""
        if self._context._scaler is not None and self._steps:
            return ""  # it skips the first steps, until its scale fits
        unlearning, named = self._optimizers_without_gradients()
        return " ".join([*self._unchanged(), *unlearning, *self._tensors_that_stay(named)])

    def _optimizers_without_gradients(self) -> tuple[list[str], set[int]]:
        """Return what to say of optimizers that learn nothing, and the parameters they have."""
        problems, named = [], set()
        for index, optimizer in enumerate(self._context.optimizers):
            keys = {id(p) for p in parameters_of(optimizer)}
            seen = {self._seen[key] for key in keys if key in self._seen}
            steps = self._steps[id(optimizer)]
            if steps >= _ENOUGH_UPDATES and seen and not keys & self._useful:
                named |= keys
                problems.append(
                    f"optimizer {index} ({type(optimizer).__name__}) learns nothing: in its first "
                    f"{counted(steps, 'update')} all gradients were {' or '.join(sorted(seen))}."
                )
        return problems, named

    def _tensors_that_stay(self, named: set[int]) -> list[str]:
        """Return what to say of single tensors that optimizers with enough updates do not move."""
        watched: set[int] = set()
        moving: set[int] = set()
        for optimizer in self._context.optimizers:
            if self._steps[id(optimizer)] >= _ENOUGH_UPDATES:
                watched |= {id(p) for p in parameters_of(optimizer)} - named
                if not self._is_scheduled(optimizer):
                    groups = [group for group in optimizer.param_groups if group.get("lr", 1) != 0]
                    moving |= {id(p) for group in groups for p in group["params"]}
        problems = []
        for index, model in enumerate(self._context.models):
            what = f"model {index} ({type(inner_module(model)).__name__})"
            tensors = [(n, p) for n, p in inner_module(model).named_parameters() if p.requires_grad]
            tensors = [(n, p) for n, p in tensors if id(p) in watched]
            zero = [n for n, p in tensors if id(p) in self._seen and id(p) not in self._useful]
            still = [n for n, p in tensors if id(p) in moving & self._useful and self._is_still(p)]
            if zero:
                problems.append(f"of {what}, {_listed(zero)} got only gradients of zero.")
            if still:
                problems.append(
                    f"of {what}, {_listed(still)} did not move, although there were gradients: "
                    "updates may be too small for the precision."
                )
        return problems

    def _is_scheduled(self, optimizer: Optimizer) -> bool:
        schedulers = (scheduler._scheduler for scheduler in self._context.lr_schedulers)
        return any(getattr(s, "optimizer", optimizer) is optimizer for s in schedulers)

    def _is_still(self, parameter: torch.Tensor) -> bool:
        before = self._small.get(id(parameter))
        return before is not None and torch.equal(before, parameter.detach())

    def _unchanged(self) -> list[str]:
        """Return what to say of tensors that no update reached."""
        context = self._context
        unchanged = [p for p in self._parameters() if p.requires_grad and not self._has_changed(p)]
        missing = {id(p) for p in unchanged}
        of_optimizers = {id(p) for o in context.optimizers for p in parameters_of(o)}
        problems = []
        for index, model in enumerate(context.models):
            names = [(n, p) for n, p in inner_module(model).named_parameters() if p.requires_grad]
            left = [(name, p) for name, p in names if id(p) in missing]
            if not left:
                continue
            what = f"model {index} ({type(inner_module(model)).__name__})"
            if len(left) == len(names):
                problems.append(f"{what} has not changed: {self._why_model(model, of_optimizers)}")
                continue
            for word, group in (
                ("are in no wrapped optimizer", [n for n, p in left if id(p) not in of_optimizers]),
                ("got no gradient", [n for n, p in left if id(p) in of_optimizers]),
            ):
                if group:
                    problems.append(f"of {what}, {_listed(group)} {word}.")
        return problems

    def _why_model(self, model: nn.Module, of_optimizers: set[int]) -> str:
        context = self._context
        own = {id(p) for p in model.parameters()}
        if not own & of_optimizers:
            return (
                "no wrapped optimizer has its parameters. Build the optimizer from this model, "
                "after context.wrap_model (or freeze the model with requires_grad_(False))."
            )
        holders = [
            (i, o)
            for i, o in enumerate(context.optimizers)
            if any(id(p) in own for p in parameters_of(o))
        ]
        stepped = [o for _, o in holders if self._steps[id(o)]]
        if not stepped:
            index, optimizer = holders[0]
            return (
                f"optimizer {index} ({type(optimizer).__name__}) was never stepped. Call "
                "context.step_optimizer(optimizer) in train_batch."
            )
        return (
            "its optimizer was stepped, but its parameters had no gradients. Call "
            "context.backward(loss) before context.step_optimizer(optimizer), with a loss that "
            "depends on this model."
        )

    def _has_changed(self, parameter: torch.Tensor) -> bool:
        key = id(parameter)
        return key in self._reached or parameter._version != self._versions.get(key)

    def _parameters(self) -> Iterable[torch.Tensor]:
        return [p for model in self._context.models for p in inner_module(model).parameters()]


def _is_small(parameter: torch.Tensor) -> bool:
    is_whole = not is_dtensor(parameter) and not is_lazy(parameter)
    return is_whole and parameter.requires_grad and parameter.numel() <= _FEW_NUMBERS


def _why_useless(gradients: list[torch.Tensor]) -> list[str]:
    """Say why nothing can be learned from gradients; of a split tensor a rank cannot tell."""
    reasons = [""] * len(gradients)
    asked: dict[int, torch.Tensor] = {}
    for index, gradient in enumerate(gradients):
        if is_dtensor(gradient):
            continue
        gradient = gradient.detach()
        numbers = gradient._values() if gradient.is_sparse else gradient
        if numbers.numel():
            largest = numbers.abs().max()
            asked[index] = torch.stack([largest.isfinite(), largest != 0])
        else:
            reasons[index] = "zero"
    if asked:
        first = next(iter(asked.values()))
        answers = torch.stack([answer.to(first.device) for answer in asked.values()])
        for index, (is_finite, is_some) in zip(asked, answers.tolist(), strict=True):  # one wait
            reasons[index] = ("" if is_some else "zero") if is_finite else "not finite"
    return reasons


def warn_of_windows(context: PyTorchTrialContext, length: int | None) -> None:
    """Say which batches of a training of `length` batches will not update any weight."""
    window = context._aggregation_frequency
    if length is None or context.distributed.rank != 0 or length % window == 0:
        return
    rest = length % window
    if rest == length:
        logger.warning(
            f"No weight will be updated: aggregation_frequency={window} accumulates the "
            f"gradients of {window} batches for one update, and training lasts only "
            f"{counted(length, 'batch')}."
        )
        return
    logger.warning(
        f"The last {counted(rest, 'batch')} of {length} will not update the weights: they do not "
        f"fill a window of aggregation_frequency={window}. The checkpoint keeps their gradients, "
        "in case training is extended."
    )


def warn_of_strays(context: PyTorchTrialContext, trial: object) -> None:
    """Name parameters that optimizers update but no wrapped model holds: they are not saved."""
    held = {id(p) for model in context.models for p in model.parameters()}
    for index, optimizer in enumerate(context.optimizers):
        strays = [p for p in parameters_of(optimizer) if id(p) not in held]
        if strays and context.distributed.rank == 0 and not context._use_apex:
            names = _names_in(trial)
            listed = [names.get(id(p), f"one of shape {tuple(p.shape)}") for p in strays]
            logger.warning(
                f"Optimizer {index} ({type(optimizer).__name__}) updates parameters that belong "
                f"to no wrapped model: {_listed(listed)}. They are neither saved in checkpoints "
                "nor synchronized between ranks. Pass their module through context.wrap_model "
                "before building the optimizer."
            )


def _names_in(trial: object) -> dict[int, str]:
    """Return where parameters are found in the attributes of a trial."""
    names: dict[int, str] = {}
    for attribute, value in vars(trial).items():
        if isinstance(value, nn.Parameter):
            names.setdefault(id(value), f"self.{attribute}")
        elif isinstance(value, nn.Module):
            for name, parameter in value.named_parameters():
                names.setdefault(id(parameter), f"self.{attribute}.{name}")
    return names


def _listed(names: list[Any]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
