"""What is searched: recorded curves of real networks, and synthetic ones."""

from __future__ import annotations

import json
import math
import statistics
from typing import Any

import numpy as np

from benchmarks.search import tables
from benchmarks.search.space import SPACE, as_numbers
from determined.platform.search.sampling.randomness import Stream
from determined.platform.search.space import Space

EPOCHS = tables.EPOCHS


class Recorded:
    """A trained table; a proposed point trains as the nearest configuration of the table does."""

    def __init__(self, name: str) -> None:
        self.name = name
        with np.load(tables.PATH) as saved:
            chosen = json.loads(str(saved["configurations"]))
            self._losses = saved[name].astype(float)
        self._points = np.array([as_numbers(hparams) for hparams in chosen])
        self._nearest: dict[str, int] = {}

    def _row(self, hparams: dict[str, Any]) -> int:
        key = repr(sorted(hparams.items()))
        if key not in self._nearest:
            gaps = self._points - np.array(as_numbers(hparams))
            self._nearest[key] = int(np.einsum("ij,ij->i", gaps, gaps).argmin())
        return self._nearest[key]

    def value(self, hparams: dict[str, Any], seed: int, units: int) -> float:
        return float(self._losses[self._row(hparams), units - 1])

    def seconds(self, hparams: dict[str, Any], seed: int) -> float:
        return 0.5 + float(hparams["hidden"]) / 48

    def best(self) -> float:
        return float(self._losses.min())


class Synthetic:
    """Power laws whose end and speed depend on all hyperparameters, with a narrow good region."""

    def __init__(self, name: str, shift: float) -> None:
        self.name, self._shift = name, shift

    def value(self, hparams: dict[str, Any], seed: int, units: int) -> float:
        lr = math.log10(hparams["lr"]) + 2.0 + self._shift
        adam = hparams["solver"] == "adam"
        miss = (lr + 0.7 * adam) ** 2 + 0.3 * (math.log10(hparams["alpha"]) + 3 + lr) ** 2 / 4
        miss += (hparams["hidden"] - 30) ** 2 / 900 + 0.2 * (hparams["activation"] == "tanh")
        miss += 0.5 * (not adam) * (hparams["momentum"] - 0.9) ** 2
        miss += 0.1 * abs(math.log2(hparams["batch_size"] / 32))
        level = 1 - math.exp(-0.5 * miss)
        speed = 0.4 + 0.25 * lr / (1 + abs(lr)) + 0.2 * adam  # large steps are fast, not better
        noise = 0.01 * math.sin(1e4 * hparams["lr"] + 17 * units)
        return 0.05 + level + (2 - level) * math.pow(units, -speed) * 0.5 + noise

    def seconds(self, hparams: dict[str, Any], seed: int) -> float:
        return 0.5 + float(hparams["hidden"]) / 48

    def best(self) -> float:
        return 0.05


class Crossing:
    """Curves that cross: what learns fast ends badly, so early rungs mislead."""

    def __init__(self, name: str, slowness: float) -> None:
        self.name, self._slowness = name, slowness

    def value(self, hparams: dict[str, Any], seed: int, units: int) -> float:
        lr, alpha = math.log10(hparams["lr"]), math.log10(hparams["alpha"])
        batch = math.log2(hparams["batch_size"] / 8)
        adam, tanh = hparams["solver"] == "adam", hparams["activation"] == "tanh"
        miss = 0.25 * (lr + 3) ** 2 + 0.04 * (alpha + 2.5) ** 2 + 0.15 * adam + 0.05 * batch
        miss += (hparams["hidden"] - 36) ** 2 / 1800 + 0.5 * (hparams["momentum"] - 0.3) ** 2
        end = 0.08 + 0.8 * (1 - math.exp(-miss - 0.1 * (not tanh)))
        slow = (-0.5 - lr) / 4 + 0.3 * (alpha + 6) / 6 + 0.4 * (not adam) + 0.1 * (3 - batch)
        slow += 0.2 * hparams["hidden"] / 48 + 0.2 * tanh
        left = math.exp(-units / (1 + self._slowness * slow))
        noise = 0.005 * math.sin(1e4 * hparams["lr"] + 17 * units)
        return float(end + (1 + 0.3 * slow - end) * left + noise)

    def seconds(self, hparams: dict[str, Any], seed: int) -> float:
        return 0.5 + float(hparams["hidden"]) / 48

    def best(self) -> float:
        return 0.08


Task = Recorded | Synthetic | Crossing


def typical(task: Task) -> float:
    """Return the median loss of random configurations at the end."""
    space, stream = Space(SPACE), Stream(7)
    return statistics.median(
        task.value(space.values(space.draw(stream)), 0, EPOCHS) for _ in range(500)
    )


def foresight(task: Task, epoch: int) -> float:
    """Return the rank correlation of random configurations at an epoch with those at the end."""
    space, stream = Space(SPACE), Stream(7)
    drawn = [space.values(space.draw(stream)) for _ in range(500)]
    early, late = ([task.value(hparams, 0, at) for hparams in drawn] for at in (epoch, EPOCHS))
    return float(np.corrcoef(np.argsort(np.argsort(early)), np.argsort(np.argsort(late)))[0, 1])


def all_tasks() -> list[Task]:
    recorded = [Recorded(name) for name in tables.TASKS] if tables.PATH.exists() else []
    return [
        *recorded,
        Synthetic("synthetic", 0.0),
        Synthetic("synthetic, shifted", 0.9),
        Crossing("crossing", 4.0),
        Crossing("crossing, late", 12.0),
    ]
