"""The hyperparameters of an experiment: what can be sampled, and how a sample becomes values.

A sample is a `Point`: one number per searched hyperparameter (the integer, the float, the
exponent of a `log`, or the index into `vals`). Models see points, and records store them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from determined.platform.search.canonical_json import dump
from determined.platform.search.sampling.randomness import Stream, between

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

    def number(self, value: Any) -> float:
        """Return the number that stands for a value. Raises ValueError for one out of range."""
        if self.kind == "categorical":
            for index, option in enumerate(self.values):
                if dump(option) == dump(value):
                    return index
            raise ValueError(f"expected one of {', '.join(map(repr, self.values))}, got {value!r}")
        kinds = int if self.kind == "int" else (int, float)
        low, high = self.low, self.high
        if self.kind == "log":
            low, high = sorted((self.base**low, self.base**high))
        if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
            what = "an integer" if self.kind == "int" else "a number"
            raise ValueError(f"expected {what} from {low!r} to {high!r}, got {value!r}")
        if self.kind != "log":
            return value
        return min(max(math.log(value) / math.log(self.base), self.low), self.high)

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
        if math.isinf(width):
            shares = [0.5] if count == 1 else [i / (count - 1) for i in range(count)]
            steps = [between(low, self.high, share) for share in shares]
        elif count == 1:
            steps = [low + width / 2]
        else:
            steps = [low + i * width / (count - 1) for i in range(count)]
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

    def values(
        self, point: Sequence[float], fixed: Mapping[int, Any] = MappingProxyType({})
    ) -> dict[str, Any]:
        """Return the nested values of a point; fixed ones, by position, as they were given."""
        numbers = enumerate(point)
        return _nest(
            (leaf, _value(leaf, *next(numbers), fixed) if leaf.is_searched else leaf.values[0])
            for leaf in self.leaves
        )

    def fixed(self, chosen: dict[str, Any], path: str) -> dict[int, Any]:
        """Return nested values by the position of their hyperparameter; `path` is for messages.

        Raises:
            ValueError: for a name that is not searched, and for a value out of its range.
        """
        positions = {leaf.path: i for i, leaf in enumerate(self.searched)}
        groups = {leaf.path[:depth] for leaf in self.leaves for depth in range(len(leaf.path))}
        given = dict(_entries(chosen, groups, ()))
        for names, value in given.items():
            where = f"{path}.{'.'.join(names)}"
            if names not in positions:
                known = ", ".join(leaf.name for leaf in self.searched) or "none"
                raise ValueError(f"{where}: not a searched hyperparameter; these are: {known}.")
            try:
                self.searched[positions[names]].number(value)
            except ValueError as error:
                raise ValueError(f"{where}: {error}.") from None
        return {positions[names]: value for names, value in given.items()}

    def moved(self, point: Point, fixed: dict[int, Any]) -> Point:
        """Return a point with the numbers of fixed values."""
        return [
            self.searched[i].number(fixed[i]) if i in fixed else number
            for i, number in enumerate(point)
        ]

    def grid(self) -> Grid:
        return Grid(self.leaves)


class Grid:
    """The product of all axes, the last one varying fastest; computed on demand."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        if not leaves:
            raise ValueError("hyperparameters: a grid search needs at least one hyperparameter.")
        self._axes = [(leaf, leaf.axis()) for leaf in leaves]
        for leaf, axis in self._axes:
            if len({dump(value) for value in axis}) < len(
                axis
            ):  # True and 1 are equal, not the same
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


def _value(leaf: Leaf, position: int, number: float, fixed: Mapping[int, Any]) -> Any:
    return fixed[position] if position in fixed else leaf.value(number)


def _entries(
    chosen: dict[str, Any], groups: set[tuple[str, ...]], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Return values by path; a dictionary is a group only where the hyperparameters have one."""
    for name, value in chosen.items():
        where = (*path, str(name))
        if where in groups and isinstance(value, dict):
            yield from _entries(value, groups, where)
        else:
            yield where, value


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
    if base <= 0 or base == 1:
        raise ValueError(f"{where}.base: expected a number above 0 other than 1, got {base!r}.")
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
