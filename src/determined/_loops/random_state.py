"""The states of the global generators, as plain values and tensors."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def random_state() -> dict[str, Any]:
    """Return the states of all global generators of the CPU, as plain values and tensors."""
    name, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    numpy_state = (str(name), torch.from_numpy(np.array(keys, dtype=np.int64)), int(position))
    return {
        "python": random.getstate(),
        "numpy": (*numpy_state, int(has_gauss), float(gauss)),
        "torch": torch.get_rng_state(),
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Set the states that `random_state` returned."""
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"])
