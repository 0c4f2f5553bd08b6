"""Turn the ranges of an experiment configuration into one set of hyperparameter values."""

from __future__ import annotations

import random
from typing import Any

_TYPES = ("const", "int", "double", "log", "categorical")


def sample_hparams(hyperparameters: dict[str, Any], seed: int | None = None) -> dict[str, Any]:
    """Draw a value for each hyperparameter; plain values stay as they are.

    A dictionary with a `type` is a range, one without is a nested group. Names are drawn in
    sorted order, so equal seeds give equal values whatever the order in the file.
    """
    return _sample_group(hyperparameters, random.Random(seed), "hyperparameters")


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
        low, high = entry["minval"], entry["maxval"]
        if kind == "int":
            return generator.randint(low, high)
        if kind == "double":
            return generator.uniform(low, high)
        return entry.get("base", 10) ** generator.uniform(low, high)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: cannot draw a value from {entry!r} ({error}).") from error
