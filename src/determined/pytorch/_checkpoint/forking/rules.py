"""What a fork changes in the state of its parent: settings that a constructor now gives otherwise.

The trial was built with the new values and then got the parent's state, which holds the old ones.
Each setting of a parameter group takes the new value. A learning rate under a schedule is scaled,
if the schedule is a factor times a base rate. What has no rule is refused, by name.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.optim import lr_scheduler as schedulers

from determined.pytorch._checkpoint.resuming.settings import (
    Settings,
    is_derived,
    leaves,
    plain,
    shown,
)
from determined.pytorch._checkpoint.state.optimizers import optimizer_name
from determined.pytorch._context.context import PyTorchTrialContext

# The rate is the base rate times a factor that does not depend on it.
_LINEAR = (
    schedulers.ConstantLR,
    schedulers.ExponentialLR,
    schedulers.LambdaLR,
    schedulers.LinearLR,
    schedulers.MultiplicativeLR,
    schedulers.MultiStepLR,
    schedulers.PolynomialLR,
    schedulers.StepLR,
)
# The same, above a floor: what is above `eta_min` is scaled, so the floor stays where it is.
_ABOVE_FLOOR = (schedulers.CosineAnnealingLR, schedulers.CosineAnnealingWarmRestarts)
_OF_PARTS = (schedulers.ChainedScheduler, schedulers.SequentialLR)

# They decide which state an optimizer has, or only what it begins with.
_NO_RULE = ("amsgrad", "capturable", "centered", "fused", "initial_accumulator_value")
_NO_RULE_IN = {"ASGD": ("alpha", "lambd", "lr", "t0"), "Rprop": ("lr",)}
# What schedulers add to groups: the schedulers themselves are judged.
_OF_SCHEDULERS = ("base_momentum", "initial_lr", "max_lr", "max_momentum", "min_lr", "swa_lr")


class ForkRules:
    """What differs from how the parent began, and what follows from it.

    `problems` says in words what no rule covers; `apply` may be called if there are none.
    """

    def __init__(self, context: PyTorchTrialContext, began: Mapping[str, Any]) -> None:
        self.problems: list[str] = []
        self._context = context
        self._constructed = Settings.of(context)
        self._values: list[tuple[dict[str, Any], str, Any]] = []
        self._rates: list[_Rate] = []
        now = self._constructed.as_json()
        for index, optimizer in enumerate(context.optimizers):
            name = f"optimizer {index} ({optimizer_name(optimizer)})"
            groups = zip(began["groups"][index], now["groups"][index], strict=False)
            for number, (old, new) in enumerate(groups):
                self._look_at_group(optimizer, index, number, old, new, name)
        pairs = zip(began["schedulers"], now["schedulers"], strict=False)
        for index, (old, new) in enumerate(pairs):
            wrapped = context.lr_schedulers[index]._scheduler
            self._look_at_state(old, new, f"scheduler {index} ({type(wrapped).__name__})")
        self._look_at_state(began.get("scaler"), now.get("scaler"), "the scaler")
        self.problems = list(dict.fromkeys(self.problems))

    def apply(self) -> None:
        """Give optimizers and schedulers, which have the parent's state, the new values."""
        for group, setting, value in self._values:
            _set(group, setting, value)
        for rate in self._rates:
            rate.apply()

    def _look_at_group(
        self,
        optimizer: torch.optim.Optimizer,
        index: int,
        number: int,
        old: Mapping[str, Any],
        new: Mapping[str, Any],
        name: str,
    ) -> None:
        group = optimizer.param_groups[number]
        for setting in new:
            if setting in old and setting not in (*_OF_SCHEDULERS, "lr"):
                if old[setting] == new[setting]:
                    continue
                self._look_at_value(optimizer, group, setting, old[setting], new[setting], name)
                value = self._constructed.groups[index][number][setting]
                self._values.append((group, setting, value))
        before, after = (g.get("initial_lr", g.get("lr")) for g in (old, new))
        if before == after:
            return
        own = [
            wrapped._scheduler
            for wrapped in self._context.lr_schedulers
            if getattr(wrapped._scheduler, "optimizer", None) is optimizer
        ]
        text = f"lr of {name}: {shown(after)} instead of {shown(before)}"
        if not own or "lr" in _NO_RULE_IN.get(optimizer_name(optimizer), ()):
            self._look_at_value(optimizer, group, "lr", before, after, name)
            rate = self._constructed.groups[index][number]["lr"]
            self._values.append((group, "lr", rate))
        elif why := _no_rule(own, number, group, before):
            self.problems.append(f"{text} ({why})")
        else:
            self._rates.append(_Rate(own, group, number, before, after))

    def _look_at_value(
        self,
        optimizer: torch.optim.Optimizer,
        group: Mapping[str, Any],
        setting: str,
        old: Any,
        new: Any,
        name: str,
    ) -> None:
        text = f"{setting} of {name}: {shown(new)} instead of {shown(old)}"
        class_name = optimizer_name(optimizer)
        starts_momentum = class_name == "RMSprop" and setting == "momentum" and not old
        if setting in (*_NO_RULE, *_NO_RULE_IN.get(class_name, ())) or starts_momentum:
            self.problems.append(f"{text} (the state of the optimizer depends on it)")
        elif plain(group[setting]) != old:
            changed = f"it is {shown(plain(group[setting]))} by now, which no scheduler has set"
            self.problems.append(f"{text} ({changed})")

    def _look_at_state(self, old: Any, new: Any, name: str) -> None:
        if old is None or new is None:
            return
        for setting, before, after in leaves(old, new, ""):
            if not is_derived(setting):
                self.problems.append(
                    f"{setting} of {name}: {shown(after)} instead of {shown(before)} (it is part "
                    "of the restored state)"
                )


class _Rate:
    """The rate of one parameter group under schedulers, from `old` to `new`."""

    def __init__(
        self, own: list[Any], group: dict[str, Any], number: int, old: float, new: float
    ) -> None:
        self._own, self._group, self._number = own, group, number
        self._old, self._new = old, new
        self._floor = _floor(own)

    def apply(self) -> None:
        for scheduler in _all_parts(self._own):
            for name in ("base_lrs", "_last_lr"):
                rates = getattr(scheduler, name, None)
                if isinstance(rates, list) and self._number < len(rates):
                    rates[self._number] = self._scaled(rates[self._number])
        if "initial_lr" in self._group:
            _set(self._group, "initial_lr", self._new)
        _set(self._group, "lr", self._scaled(float(self._group["lr"])))

    def _scaled(self, rate: Any) -> Any:
        # The base rate itself must come out exactly, whatever a quotient rounds to.
        if float(rate) == self._old:
            return self._new
        floor = self._floor
        return floor + (rate - floor) * ((self._new - floor) / (self._old - floor))


def _no_rule(own: list[Any], number: int, group: Mapping[str, Any], old: Any) -> str:
    """Say why a rate under these schedulers cannot be changed; nothing if it can."""
    for scheduler in own:
        if type(scheduler) is schedulers.ReduceLROnPlateau:
            if float(group["lr"]) <= scheduler.min_lrs[number]:
                return "ReduceLROnPlateau has lowered it to its min_lr"
        elif not _is_linear(scheduler) and type(scheduler) not in _ABOVE_FLOOR:
            kinds = ", ".join(
                type(part).__name__ for part in _all_parts([scheduler]) if not _is_linear(part)
            )
            return f"there is no rule for {kinds}"
    if _floor(own) != 0 and len(own) > 1:
        return "there is no rule for a schedule with an eta_min beside another one"
    if not isinstance(old, (int, float)) or old == _floor(own):
        return f"a rate of {shown(old)} cannot be scaled"
    return ""


def _is_linear(scheduler: Any) -> bool:
    if type(scheduler) in _OF_PARTS:
        return all(map(_is_linear, scheduler._schedulers))
    if type(scheduler) in _ABOVE_FLOOR:
        return bool(scheduler.eta_min == 0)
    return type(scheduler) in _LINEAR


def _floor(own: list[Any]) -> float:
    return max((float(getattr(scheduler, "eta_min", 0.0)) for scheduler in own), default=0.0)


def _all_parts(own: list[Any]) -> Iterator[Any]:
    for scheduler in own:
        yield scheduler
        if type(scheduler) in _OF_PARTS:
            yield from _all_parts(scheduler._schedulers)


def _set(group: dict[str, Any], setting: str, value: Any) -> None:
    """Set a value; a tensor, which captured graphs read, stays the same one."""
    now = group[setting]
    if isinstance(now, torch.Tensor):
        now.fill_(float(value))
    else:
        group[setting] = copy.deepcopy(value)
