"""Arguments of `fit` that other trainers have: what to write here instead."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_EPOCHS = "max_length=pytorch.Epoch({})"
_BATCHES = "max_length=pytorch.Batch({})"
_INSTEAD = {
    **dict.fromkeys(
        ("max_epochs", "epochs", "num_epochs", "num_train_epochs", "n_epochs"), _EPOCHS
    ),
    **dict.fromkeys(("max_steps", "steps", "num_steps", "max_batches", "max_iters"), _BATCHES),
    "val_check_interval": "validation_period=pytorch.Batch({})",
    "check_val_every_n_epoch": "validation_period=pytorch.Epoch({})",
    "save_steps": "checkpoint_period=pytorch.Batch({})",
    "log_every_n_steps": "reporting_period=pytorch.Batch({})",
    "limit_val_batches": "limit_validation_batches={}",
    "num_sanity_val_steps": "sanity_validation={}",
    "resume_from_checkpoint": 'latest_checkpoint="latest"',
    "ckpt_path": "latest_checkpoint={!r}",
    "accumulate_grad_batches": "pytorch.init(aggregation_frequency={})",
}


def naming_our_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Have a method refuse unknown arguments with what to write instead of them."""
    known = [name for name in inspect.signature(function).parameters if name != "self"]

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name, value in kwargs.items():
            if name not in known:
                raise TypeError(
                    f"{function.__name__} has no argument `{name}`{_meant(name, value)}"
                )
        return function(*args, **kwargs)

    def _meant(name: str, value: object) -> str:
        if name in _INSTEAD:
            return f": write {_INSTEAD[name].format(value)}."
        near = difflib.get_close_matches(name, known, n=1)
        return f". Did you mean `{near[0]}`?" if near else f"; it has {', '.join(known)}."

    return checked
