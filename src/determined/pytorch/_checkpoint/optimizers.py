"""Whether an optimizer can continue from the saved state of another."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from torch.optim import Optimizer

logger = logging.getLogger("determined.pytorch")

_WAYS_OUT = (
    "Continue with the optimizer that the run started with, or start another run: "
    'pytorch.init(run_id="...").'
)


def optimizer_name(optimizer: Optimizer) -> str:
    """Return the name of the optimizer's class."""
    return type(optimizer).__name__


def check_optimizer(
    optimizer: Optimizer, saved: Mapping[str, Any], index: int, saved_name: str | None
) -> None:
    """Raise if `optimizer` cannot continue from `saved`, the state of an optimizer `saved_name`."""
    name = optimizer_name(optimizer)
    groups, saved_groups = optimizer.param_groups, saved.get("param_groups", [])
    if not all(isinstance(group, Mapping) and "params" in group for group in saved_groups):
        return  # not the form of torch's own: let the optimizer judge
    sizes = [len(group["params"]) for group in groups]
    saved_sizes = [len(group["params"]) for group in saved_groups]
    was = saved_name or "another class"
    lacking, foreign = _settings_that_differ(groups, saved_groups)
    # Releases of torch add settings to an optimizer; only another one lacks some and has others.
    if lacking and foreign:
        raise RuntimeError(
            f"The checkpoint's optimizer {index} is of {was}, with {', '.join(foreign)}; that of "
            f"the trial is of {name}, with {', '.join(lacking)}. {_WAYS_OUT}"
        )
    if sizes != saved_sizes:
        raise RuntimeError(
            f"The checkpoint's optimizer {index} ({saved_name or name}) has parameter groups of "
            f"{_listed(saved_sizes)} parameters, that of the trial ({name}) has {_listed(sizes)}. "
            f"{_WAYS_OUT}"
        )
    if saved_name is not None and saved_name != name:
        logger.warning(
            f"The checkpoint's optimizer {index} was {saved_name} and continues as {name}: "
            "their settings have the same names, but the updates may differ."
        )


def _settings_that_differ(groups: list[Any], saved: list[Any]) -> tuple[list[str], list[str]]:
    """Return the names that only the optimizer has, and those that only the checkpoint has.

    Schedulers add names of their own (`initial_lr`, bounds of cycles), which do not count.
    """
    if not groups or not saved:
        return [], []
    own, stored = set(groups[0]), set(saved[0])
    added = {"initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum", "swa_lr"}
    return sorted(own - stored - added), sorted(stored - own - added)


def _listed(sizes: list[int]) -> str:
    return " + ".join(map(str, sizes)) or "no"
