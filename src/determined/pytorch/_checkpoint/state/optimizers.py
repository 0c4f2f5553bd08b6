"""The saved state of an optimizer: whether another can continue from it, and putting it back.

torch's own `load_state_dict` interprets: it casts the state to the type of the weights, and makes
text and other containers anew in its own way. What it changed is put right afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch.optim import Optimizer

from determined.pytorch._checkpoint.state.copying import (
    copy_state,
    is_made_of_tensors,
    remake,
)
from determined.pytorch._ranks.fsdp import is_dtensor

logger = logging.getLogger("determined.pytorch")

_WAYS_OUT = (
    "Continue with the optimizer that the run started with, or start another run: "
    'pytorch.init(run_id="...").'
)


def optimizer_name(optimizer: Optimizer) -> str:
    """Return the name of the optimizer's class."""
    return type(optimizer).__name__


def has_own_format(optimizer: Optimizer) -> bool:
    """Say whether an optimizer saves and loads its state by methods of its own."""
    return any(
        getattr(type(optimizer), name, None) is not getattr(Optimizer, name)
        or name in vars(optimizer)
        for name in ("state_dict", "load_state_dict")
    )


def check_optimizer(
    optimizer: Optimizer, saved: Mapping[str, Any], index: int, saved_name: str | None
) -> None:
    """Raise if `optimizer` cannot continue from `saved`, the state of an optimizer `saved_name`."""
    name = optimizer_name(optimizer)
    if has_own_format(optimizer):
        return  # it judges for itself
    groups, saved_groups = optimizer.param_groups, saved.get("param_groups", [])
    sizes = [len(group["params"]) for group in groups]
    saved_sizes = [len(group["params"]) for group in saved_groups]
    was = saved_name or "of another class"
    lacking, foreign = _settings_that_differ(groups, saved_groups)
    # Releases of torch add settings to an optimizer; only another one lacks some and has others.
    if lacking and foreign:
        raise RuntimeError(
            f"The checkpoint's optimizer {index} is {was}, with {', '.join(foreign)}; the "
            f"trial's is {name}, with {', '.join(lacking)}. {_WAYS_OUT}"
        )
    if sizes != saved_sizes:
        raise RuntimeError(
            f"The checkpoint's optimizer {index} ({saved_name or name}) has parameter groups of "
            f"{_listed(saved_sizes)} parameters, the trial's ({name}) has {_listed(sizes)}. "
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


def load_optimizer(
    optimizer: Optimizer, saved: dict[str, Any], dtypes: Mapping[int, torch.dtype]
) -> None:
    """Give an optimizer its saved state, bit for bit.

    `dtypes` are the types in which weights were saved, by the id of the parameter. The state of one
    that has another type now is cast, as torch does.
    """
    is_own = has_own_format(optimizer)
    state = copy_state(saved)  # an optimizer keeps what it is given, and this belongs to the file
    of_parameters = _by_parameter(optimizer, state)
    optimizer.load_state_dict(state if is_own or not of_parameters else _what_torch_keeps(state))
    shown = optimizer.state_dict().get("state") if is_own and of_parameters else {}
    for index, parameter, wanted in of_parameters:
        loaded = optimizer.state.get(parameter)
        if dtypes.get(id(parameter), parameter.dtype) != parameter.dtype or loaded is None:
            continue
        if not is_own:
            _put_right(loaded, _on_device(wanted, parameter.device), loaded)
        elif isinstance(shown, dict) and isinstance(shown.get(index), dict):
            _put_right(loaded, wanted, shown[index], containers=False)


def _by_parameter(
    optimizer: Optimizer, state: dict[str, Any]
) -> list[tuple[Any, torch.Tensor, dict[Any, Any]]]:
    """Return number, parameter and state of all that have one, if the state has torch's form."""
    groups, states = state.get("param_groups"), state.get("state")
    if not isinstance(groups, list) or not isinstance(states, dict):
        return []
    if not all(isinstance(group, Mapping) and "params" in group for group in groups):
        return []
    indices = [index for group in groups for index in group["params"]]
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if len(indices) != len(parameters):
        return []
    pairs = zip(indices, parameters, strict=True)
    return [(i, p, dict(states[i])) for i, p in pairs if isinstance(states.get(i), dict)]


def _what_torch_keeps(state: dict[str, Any]) -> dict[str, Any]:
    """Leave out what torch would make anew in a way of its own."""
    states = {
        index: {name: value for name, value in entry.items() if _is_kept(value)}
        if isinstance(entry, dict)
        else entry
        for index, entry in state["state"].items()
    }
    return {**state, "state": states}


def _is_kept(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return type(value) is torch.Tensor or is_dtensor(value)
    return isinstance(value, (bool, int, float, complex, type(None)))


def _on_device(state: dict[Any, Any], device: torch.device) -> dict[Any, Any]:
    """Move what torch does not put back by itself to where its parameter is."""

    def move(value: Any, _: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if is_made_of_tensors(value):
            return remake(value, lambda part, name: move(part, name))
        return value.to(device)

    return {
        name: value if _is_kept(value) else copy_state(value, move) for name, value in state.items()
    }


def _put_right(
    loaded: dict[Any, Any], wanted: dict[Any, Any], shown: dict[Any, Any], containers: bool = True
) -> None:
    """Give the state of one parameter the types and containers back with which it was saved.

    `shown` is what the optimizer shows of it: one with a format of its own may keep something else,
    and is left alone where it shows what was saved.
    """
    for name, value in wanted.items():
        if containers and not _is_kept(value):
            loaded[name] = value
            continue
        now = shown.get(name)
        if not isinstance(now, torch.Tensor) or not isinstance(value, torch.Tensor):
            continue
        if now.dtype != value.dtype:  # torch has cast it
            loaded[name] = value.to(now.device)
