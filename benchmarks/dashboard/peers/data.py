"""What all of them show. Standard library alone: interpreters of other packages import this."""

from __future__ import annotations

import math
import random
from typing import NamedTuple

POINTS = 200_000
TRIALS = 2000
SPIKE_AT = 100_017
SPIKE = 49.875  # the same in single and double precision


class Trial(NamedTuple):
    """A finished trial of the table."""

    lr: float
    units: int
    loss: float


def curve(points: int = POINTS) -> list[float]:
    """A falling curve with noise, and one point that no chart should lose."""
    noise = random.Random(0)
    values = [0.1 + 2 * math.exp(-5 * n / points) + noise.gauss(0, 0.05) for n in range(points)]
    values[SPIKE_AT * points // POINTS] = SPIKE
    return values


def trials(count: int = TRIALS) -> list[Trial]:
    """The results of a random search."""
    draw = random.Random(1)
    return [
        Trial(10 ** draw.uniform(-4, -1), draw.randrange(16, 257), draw.uniform(0.1, 1))
        for _ in range(count)
    ]
