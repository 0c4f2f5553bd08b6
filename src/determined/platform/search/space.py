"""The hyperparameters of an experiment: what can be sampled, and how a sample becomes values.

A sample is a `Point`: one number per searched hyperparameter (the integer, the float, the
exponent of a `log`, or the index into `vals`). Models see points, and records store them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from determined.platform.search.sampling.randomness import Stream

Point = list[float]
_TYPES = ("const", "int", "double", "log", "categorical")


@dataclass(frozen=True, slots=True)
class Leaf:
    """One hyperparameter: its path in the nested values, and its range."""

    path: tuple[str, ...]
    kind: str
    low: float = 0
    high: float = 0
    base: float = 10.0
    count: int | None = None
    values: tuple[Any, ...] = ()

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def is_searched(self) -> bool:
        return self.kind in ("int", "double", "log") or len(self.values) > 1

    def draw(self, stream: Stream) -> float:
        if self.kind == "int":
            return stream.integer(int(self.low), int(self.high) + 1)
        if self.kind == "categorical":
            return stream.integer(0, len(self.values))
        return stream.uniform(self.low, self.high)

    def value(self, number: float) -> Any:
        """Return the hyperparameter's value for a sampled number."""
        if self.kind == "int":
            return int(number)
        if self.kind == "log":
            return self.base**number
        return self.values[int(number)] if self.values else float(number)

    def axis(self) -> list[Any]:
        """Return the values of a grid, in order."""
        if self.values:
            return list(self.values)
        if self.count is None:
            raise ValueError(
                f"hyperparameters.{self.name}: a grid search needs `count`, the number of values "
                "to try."
            )
        count, low, width = self.count, self.low, self.high - self.low
        if self.kind == "int":
            count = min(count, int(width) + 1)
        steps = (
            [low + width / 2]
            if count == 1
            else [low + i * width / (count - 1) for i in range(count)]
        )
        if self.kind == "int":
            return [_round_half_away(step) for step in steps]
        return [self.value(step) for step in steps]


class Space:
    """All hyperparameters of an experiment, in ascending order of their names at every level."""

    def __init__(self, hyperparameters: dict[str, Any]) -> None:
        self.leaves = tuple(_leaves(hyperparameters, ()))
        self.searched = tuple(leaf for leaf in self.leaves if leaf.is_searched)

    def draw(self, stream: Stream) -> Point:
        return [leaf.draw(stream) for leaf in self.searched]

    def values(self, point: Sequence[float]) -> dict[str, Any]:
        """Return the nested values of a point."""
        numbers = iter(point)
        return _nest(
            (leaf, leaf.value(next(numbers)) if leaf.is_searched else leaf.values[0])
            for leaf in self.leaves
        )

    def grid(self) -> Grid:
        return Grid(self.leaves)


class Grid:
    """The product of all axes, the last one varying fastest; computed on demand."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        if not leaves:
            raise ValueError("hyperparameters: a grid search needs at least one hyperparameter.")
        self._axes = [(leaf, leaf.axis()) for leaf in leaves]
        for leaf, axis in self._axes:
            if any(value in axis[:i] for i, value in enumerate(axis)):
                raise ValueError(
                    f"hyperparameters.{leaf.name}: the values of a grid must differ, got {axis!r}."
                )

    def __len__(self) -> int:
        return math.prod(len(axis) for _, axis in self._axes)

    def __getitem__(self, index: int) -> dict[str, Any]:
        chosen = []
        for leaf, axis in reversed(self._axes):
            index, place = divmod(index, len(axis))
            chosen.append((leaf, axis[place]))
        return _nest(reversed(chosen))


def _leaves(group: dict[str, Any], path: tuple[str, ...]) -> Iterator[Leaf]:
    for name in sorted(group, key=str):
        entry, where = group[name], (*path, str(name))
        if not isinstance(entry, dict):
            yield Leaf(where, "const", values=(entry,))
        elif "type" in entry:
            yield _typed(entry, where)
        elif entry:
            yield from _leaves(entry, where)
        else:
            yield Leaf(where, "const", values=({},))


def _typed(entry: dict[str, Any], path: tuple[str, ...]) -> Leaf:
    where, kind = f"hyperparameters.{'.'.join(path)}", entry["type"]
    if kind not in _TYPES:
        raise ValueError(f"{where}.type: expected one of {', '.join(_TYPES)}, got {kind!r}.")
    try:
        if kind == "const":
            return Leaf(path, kind, values=(entry["val"],))
        if kind == "categorical":
            if not entry["vals"]:
                raise ValueError(f"{where}.vals: expected at least one value, got an empty list.")
            return Leaf(path, kind, values=tuple(entry["vals"]))
        low, high, base = entry["minval"], entry["maxval"], entry.get("base", 10.0)
    except KeyError as error:
        raise ValueError(f"{where}: `{error.args[0]}` is missing in {entry!r}.") from None
    if not low < high:
        raise ValueError(f"{where}: expected minval < maxval, got {low!r} and {high!r}.")
    if base <= 0:
        raise ValueError(f"{where}.base: expected a number above 0, got {base!r}.")
    return Leaf(path, kind, low=low, high=high, base=float(base), count=entry.get("count"))


def _nest(chosen: Iterator[tuple[Leaf, Any]]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for leaf, value in chosen:
        group = nested
        for name in leaf.path[:-1]:
            group = group.setdefault(name, {})
        group[leaf.path[-1]] = value
    return nested


def _round_half_away(number: float) -> int:
    return math.floor(abs(number) + 0.5) * (1 if number >= 0 else -1)
