"""Turn the ranges of an experiment configuration into one set of hyperparameter values."""

from __future__ import annotations

import math
import random
from typing import Any

_TYPES = ("const", "int", "double", "log", "log_int", "categorical")


def sample_hparams(hyperparameters: dict[str, Any], seed: int | None = None) -> dict[str, Any]:
    """Draw a value for each hyperparameter; plain values stay as they are.

    A dictionary with a `type` is a range, one without is a nested group. Names are drawn in
    sorted order, so equal seeds give equal values whatever the order in the file. One whose
    condition (`when`) is not met is left out.
    """
    drawn = _sample_group(hyperparameters, random.Random(seed), "hyperparameters")
    while _drop_inactive(hyperparameters, drawn, drawn):
        pass
    return drawn


def _drop_inactive(group: dict[str, Any], drawn: dict[str, Any], all_drawn: dict[str, Any]) -> bool:
    """Remove values whose conditions are not met; return whether there were any."""
    found = False
    for name in [name for name in group if name in drawn and isinstance(group[name], dict)]:
        entry = group[name]
        if "type" not in entry:
            found |= _drop_inactive(entry, drawn[name], all_drawn)
        elif not _is_met_all(entry.get("when") or {}, all_drawn):
            del drawn[name]
            found = True
    return found


def _is_met_all(when: dict[str, Any], drawn: dict[str, Any]) -> bool:
    return all(_is_met(name, wanted, drawn) for name, wanted in when.items())


def _is_met(name: str, wanted: Any, drawn: Any) -> bool:
    for part in name.split("."):
        if not isinstance(drawn, dict) or part not in drawn:
            return False
        drawn = drawn[part]
    if isinstance(wanted, dict) and isinstance(drawn, dict):
        return _is_met_all(wanted, drawn)
    options = wanted if isinstance(wanted, (list, tuple)) else [wanted]
    return any(type(option) is type(drawn) and option == drawn for option in options)


def _sample_group(group: dict[str, Any], generator: random.Random, path: str) -> dict[str, Any]:
    values = {
        name: _sample(group[name], generator, f"{path}.{name}") for name in sorted(group, key=str)
    }
    return {name: values[name] for name in group}


def _sample(entry: Any, generator: random.Random, path: str) -> Any:
    if not isinstance(entry, dict):
        return entry
    if "type" not in entry:
        return _sample_group(entry, generator, path)
    kind = entry["type"]
    if kind not in _TYPES:
        raise ValueError(f"{path}.type: expected one of {', '.join(_TYPES)}, got {kind!r}.")
    try:
        if kind == "const":
            return entry["val"]
        if kind == "categorical":
            return generator.choice(entry["vals"])
        low, high, step = entry["minval"], entry["maxval"], entry.get("step")
        if step is not None and kind in ("int", "double"):
            steps = generator.randint(0, math.floor((high - low) / step + 1e-9))
            return low + steps * step
        if kind == "log_int":
            drawn = math.exp(generator.uniform(math.log(low - 0.5), math.log(high + 0.5)))
            return min(max(math.floor(drawn + 0.5), low), high)
        if kind == "int":
            return generator.randint(low, high)
        if kind == "double":
            return generator.uniform(low, high)
        return entry.get("base", 10) ** generator.uniform(low, high)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: cannot draw a value from {entry!r} ({error}).") from error
