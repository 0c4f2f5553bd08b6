"""The hyperparameters that all contenders search, and points in it as numbers from 0 to 1."""

from __future__ import annotations

import math
from typing import Any

SPACE: dict[str, Any] = {
    "activation": {"type": "categorical", "vals": ["relu", "tanh"]},
    "alpha": {"type": "log", "base": 10, "minval": -6, "maxval": 0},
    "batch_size": {"type": "categorical", "vals": [8, 16, 32, 64]},
    "hidden": {"type": "int", "minval": 2, "maxval": 48},
    "lr": {"type": "log", "base": 10, "minval": -4.5, "maxval": -0.5},
    "momentum": {"type": "double", "minval": 0.0, "maxval": 0.99},
    "solver": {"type": "categorical", "vals": ["sgd", "adam"]},
}


def as_numbers(hparams: dict[str, Any]) -> list[float]:
    """Return a configuration as coordinates from 0 to 1; the distance of categories is 0 or 1."""
    numbers: list[float] = []
    for name, leaf in SPACE.items():
        value = hparams[name]
        if leaf["type"] == "categorical":
            numbers += [math.sqrt(0.5) * (value == option) for option in leaf["vals"]]
        else:
            where = math.log(value, leaf["base"]) if leaf["type"] == "log" else value
            numbers.append((where - leaf["minval"]) / (leaf["maxval"] - leaf["minval"]))
    return numbers
