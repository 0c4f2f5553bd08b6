"""Learning curves for simulations: synthetic or recorded."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from determined.platform.search.canonical_json import dump


class SyntheticCurves:
    """Losses that follow a power law, down to a level that depends on the hyperparameters.

    Every trial has its own level, speed and noise, all derived from its hyperparameters (and its
    seed, for the noise), so equal trials have equal curves. Early results say something about late
    ones, but not everything: trials that learn fast are not always good.
    """

    def __init__(self, seed: int = 0, noise: float = 0.01) -> None:
        self._seed, self._noise = seed, noise
        self._known: dict[int, tuple[float, float, float]] = {}

    def value(self, hparams: dict[str, Any], seed: int, units: int) -> float:
        level, speed, _ = self._traits(hparams, seed)
        noise = self._noise * (_fraction(f"{seed}:{units}") - 0.5)
        return level + (1.0 - level) * math.pow(units, -speed) + noise

    def seconds(self, hparams: dict[str, Any], seed: int) -> float:
        return self._traits(hparams, seed)[2]

    def _traits(self, hparams: dict[str, Any], seed: int) -> tuple[float, float, float]:
        if seed not in self._known:
            text = dump(hparams)
            a, b, c = (_fraction(f"{self._seed}:{part}:{text}") for part in ("a", "b", "c"))
            # Few levels are good, as in real spaces; the speed follows the level loosely.
            self._known[seed] = (0.05 + 0.9 * math.sqrt(a), 0.3 + 0.5 * b + 0.3 * (1 - a), 0.5 + c)
        return self._known[seed]


class RecordedCurves:
    """Measured curves, one list of values per trial, keyed by the trial's hyperparameters."""

    def __init__(self, curves: Mapping[str, Sequence[float]], seconds: float = 1.0) -> None:
        self._curves, self._seconds = curves, seconds

    @staticmethod
    def key(hparams: dict[str, Any]) -> str:
        """Return the key of a curve: its hyperparameters as text."""
        return dump(hparams)

    def value(self, hparams: dict[str, Any], seed: int, units: int) -> float:
        return self._curves[self.key(hparams)][units - 1]

    def seconds(self, hparams: dict[str, Any], seed: int) -> float:
        return self._seconds


def _fraction(text: str) -> float:
    """Return a pseudorandom number in [0, 1) that depends only on the text."""
    first = zlib.crc32(text.encode())
    return zlib.crc32(first.to_bytes(4, "little") + text[::-1].encode()) / 2**32
