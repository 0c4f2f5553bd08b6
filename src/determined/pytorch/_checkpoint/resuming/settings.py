"""The settings that a script gives to optimizers and schedulers, and whose count on resume.

A checkpoint restores the settings of a run: the learning rate, its schedule, weight decay. If the
script constructs others by now, that is said, and `fit(settings_from="script")` takes those.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import logging
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from determined.pytorch._checkpoint.state.optimizers import optimizer_name
from determined.pytorch._context.context import PyTorchTrialContext

logger = logging.getLogger("determined.pytorch")

# They follow from other settings, which are named instead where those differ. The rate that a
# script gives is the `initial_lr` of a group that has a scheduler.
_DERIVED = ("base_lrs", "_last_lr", "min_lr", "_schedule_phases")


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a script constructed: the settings of each group, and the state of each scheduler."""

    groups: list[list[dict[str, Any]]]
    schedulers: list[dict[str, Any]]
    scaler: dict[str, Any] | None = None

    @classmethod
    def of(cls, context: PyTorchTrialContext) -> Settings:
        """Return those of a trial; a later `fit` of it gets what the first one found."""
        if context._constructed is None:
            context._constructed = cls(
                [
                    [_copied(group) for group in optimizer.param_groups]
                    for optimizer in context.optimizers
                ],
                [_copied(scheduler.state_dict()) for scheduler in context.lr_schedulers],
                None if context._scaler is None else _copied(context._scaler.state_dict()),
            )
        found: Settings = context._constructed
        return found

    def as_json(self) -> dict[str, Any]:
        """Return what a checkpoint keeps: plain values."""
        return {
            "version": 1,
            "groups": plain(self.groups),
            "schedulers": plain(self.schedulers),
            "scaler": plain(self.scaler),
        }


def other_settings(context: PyTorchTrialContext, saved: Mapping[str, Any]) -> list[str]:
    """Say in words what the script constructs otherwise than it did when the run began."""
    names = [
        *(f"optimizer {i} ({optimizer_name(o)})" for i, o in enumerate(context.optimizers)),
        *(
            f"scheduler {i} ({type(s._scheduler).__name__})"
            for i, s in enumerate(context.lr_schedulers)
        ),
    ]
    now = Settings.of(context).as_json()
    before, after = ([*s.get("groups", ()), *s.get("schedulers", ())] for s in (saved, now))
    found: dict[str, bool] = {}  # whether it is more than a consequence of others
    for name, old_settings, new_settings in zip(names, before, after, strict=False):
        for setting, old, new in leaves(old_settings, new_settings, ""):
            word = "lr" if setting == "initial_lr" else setting
            text = f"{word} of {name}: {shown(new)} instead of {shown(old)}"
            found[text] = found.get(text, False) or not is_derived(setting)
    return [text for text, leads in found.items() if leads] or list(found)


def say_other_settings(found: Sequence[str]) -> None:
    """Tell the user that the settings of the checkpoint count, and how to have the others."""
    logger.warning(
        "The script gives other settings than the run of this checkpoint began with: "
        f"{'; '.join(found)}. Those of the checkpoint are used, and schedules go on as they were "
        'laid out. To take those of the script: fit(settings_from="script").'
    )


def apply_settings(context: PyTorchTrialContext, saved: Mapping[str, Any]) -> None:
    """Give optimizers and schedulers, which a checkpoint restored, the settings of the script.

    A schedule goes to where it would be had it been the run's from the beginning. One that depends
    on metrics keeps its state, and rates that it has lowered stay lowered by the same factor.
    """
    constructed = Settings.of(context)
    began = zip(saved.get("groups", ()), constructed.groups, strict=False)
    for optimizer, (old, new) in zip(context.optimizers, began, strict=False):
        own = [
            (wrapped._scheduler, state)
            for wrapped, state in zip(context.lr_schedulers, constructed.schedulers, strict=True)
            if getattr(wrapped._scheduler, "optimizer", None) is optimizer
        ]
        keeps_state = any(_steps(scheduler) is None for scheduler, _ in own)
        for group, old_settings, settings in zip(optimizer.param_groups, old, new, strict=False):
            first = old_settings.get("lr")
            factor = float(group["lr"]) / first if keeps_state and first else 1.0
            group.update(copy.deepcopy(settings))
            group["lr"] = group["lr"] * factor
        for scheduler, state in own:
            _lay_out(scheduler, state)


def _lay_out(scheduler: Any, constructed: Mapping[str, Any]) -> None:
    """Bring a scheduler from what the script constructed to as many steps as it had made."""
    steps = _steps(scheduler)
    if steps is None:
        kept = ("best", "num_bad_epochs", "cooldown_counter", "last_epoch", "_last_lr")
        state = {**scheduler.state_dict(), **copy.deepcopy(dict(constructed))}
        state.update({name: v for name, v in scheduler.state_dict().items() if name in kept})
        scheduler.load_state_dict(state)
        return
    scheduler.load_state_dict(copy.deepcopy(dict(constructed)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that no update came between the steps
        for _ in range(steps):
            scheduler.step()


def _steps(scheduler: Any) -> int | None:
    """Return how many steps a scheduler has made; None if it cannot make them again."""
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        return None
    if isinstance(scheduler, torch.optim.lr_scheduler.ChainedScheduler):
        scheduler = scheduler._schedulers[0]
    if not isinstance(scheduler, torch.optim.lr_scheduler.LRScheduler):
        return None
    return max(0, int(scheduler.last_epoch))


def _copied(settings: Mapping[str, Any]) -> dict[str, Any]:
    copied = {}
    for name, value in settings.items():
        # What cannot be copied (a generator, a lock) is no setting.
        with contextlib.suppress(Exception):
            if name != "params":
                copied[name] = copy.deepcopy(value)
    return copied


# What differs.


def began_with(saved: Any) -> Mapping[str, Any] | None:
    """Return the settings that a checkpoint keeps, None if it has none that make sense."""
    if not isinstance(saved, Mapping) or not isinstance(saved.get("schedulers"), list):
        return None
    groups = saved.get("groups")
    return saved if isinstance(groups, list) and all(map(_holds_settings, groups)) else None


def leaves(saved: Any, now: Any, name: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the settings that differ, with the saved and the current value."""
    if isinstance(saved, Mapping) and isinstance(now, Mapping) and _has_names(saved, now):
        for key in now:
            if key in saved and not (key == "lr" and "initial_lr" in now and "initial_lr" in saved):
                inner = key.lstrip("_") if key in ("_schedulers", "_milestones") else key
                yield from leaves(saved[key], now[key], f"{name}.{inner}" if name else inner)
    elif _holds_settings(saved) and _holds_settings(now) and len(saved) == len(now):
        for number, (old, new) in enumerate(zip(saved, now, strict=True)):
            yield from leaves(old, new, f"{name}[{number}]" if name else "")
    elif saved != now:
        yield name, saved, now


def _has_names(*values: Mapping[str, Any]) -> bool:
    """Whether the keys are names of settings, not the milestones of a `MultiStepLR`."""
    return all(key.isidentifier() for value in values for key in value)


def _holds_settings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, Mapping) for item in value)


def is_derived(setting: str) -> bool:
    """Say whether a setting only follows from others."""
    return any(part.partition("[")[0] in _DERIVED for part in setting.split("."))


def shown(value: Any) -> str:
    """Return a value as messages show it."""
    return f"[{', '.join(value)}]" if isinstance(value, Mapping) else str(value)


_DROPPED = object()


def plain(value: Any) -> Any:
    """Return what JSON can hold of a value; settings of other kinds are left out."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.Tensor):
        return plain(value.tolist()) if value.numel() <= 16 else _DROPPED
    if isinstance(value, Mapping):
        items = {str(name): plain(inner) for name, inner in value.items()}
        return {name: inner for name, inner in items.items() if inner is not _DROPPED}
    if isinstance(value, Sequence):
        return [inner for inner in map(plain, value) if inner is not _DROPPED]
    return _DROPPED
