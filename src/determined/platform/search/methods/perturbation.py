"""The hyperparameters of a fork in population-based training: its parent's, changed at random."""

from __future__ import annotations

import copy
from fractions import Fraction
from typing import Any

from determined.platform.search.canonical_json import dump
from determined.platform.search.sampling.randomness import Stream
from determined.platform.search.settings import Settings
from determined.platform.search.space import Leaf, Space

_TRIES = 16  # a fork without any change would train what its parent trains

Changed = dict[str, list[Any]]


class Perturbation:
    """Multiplies values by one of some factors, or draws them anew; ranges stay as they are."""

    def __init__(self, settings: Settings, space: Space) -> None:
        names = [leaf.name for leaf in space.searched]
        for name in settings.inherit:
            if name not in names:
                known = ", ".join(names) or "none"
                raise ValueError(
                    f"searcher.inherit: {name!r} is not a searched hyperparameter; these are: "
                    f"{known}."
                )
        self._leaves = [leaf for leaf in space.searched if leaf.name not in settings.inherit]
        if not self._leaves:
            raise ValueError(
                "searcher: population-based training changes hyperparameters, and none is searched "
                "that a fork does not inherit: give at least one a range."
            )
        self._factors, self._resample = settings.perturb, settings.resample

    def of(self, hparams: dict[str, Any], stream: Stream) -> tuple[dict[str, Any], Changed]:
        """Return changed hyperparameters, and the old and new value of each that differs."""
        values, changed = self._once(hparams, stream)
        for _ in range(_TRIES):
            if changed:
                break
            values, changed = self._once(hparams, stream)
        return values, changed

    def _once(self, hparams: dict[str, Any], stream: Stream) -> tuple[dict[str, Any], Changed]:
        values, changed = copy.deepcopy(hparams), Changed()
        for leaf in self._leaves:
            group = values
            for name in leaf.path[:-1]:
                group = group[name]
            old = group[leaf.path[-1]]
            if stream.uniform(0.0, 1.0) < self._resample:
                new = leaf.value(leaf.draw(stream))
            else:
                new = perturbed(leaf, old, self._factors[stream.integer(0, len(self._factors))])
            if dump(new) != dump(old):
                group[leaf.path[-1]] = new
                changed[leaf.name] = [old, new]
        return values, changed


def perturbed(leaf: Leaf, value: Any, factor: float) -> Any:
    """Return a value times a factor, within the range; at its end, it moves the other way.

    Integers change by at least 1. A category becomes its neighbor.
    """
    if factor == 1:
        return value
    for way in (factor, 1 / factor):
        new = _moved(leaf, value, way)
        if dump(new) != dump(value):
            return new
    return value


def _moved(leaf: Leaf, value: Any, factor: float) -> Any:
    step = 1 if factor > 1 else -1
    if leaf.kind == "categorical":
        place = int(leaf.number(value)) + step
        return leaf.values[place] if 0 <= place < len(leaf.values) else value
    if leaf.kind == "int":
        whole = round(Fraction(value) * Fraction(factor))
        return min(max(value + step if whole == value else whole, int(leaf.low)), int(leaf.high))
    low, high = leaf.low, leaf.high
    if leaf.kind == "log":
        low, high = sorted((leaf.base**low, leaf.base**high))
    return min(max(float(value) * factor, float(low)), float(high))
