"""The hyperparameters of an experiment: what can be sampled, and how a sample becomes values.

A sample is a `Point`: one number per searched hyperparameter (the integer, the float, the
exponent of a `log`, the index into `vals`, or the number of steps from `minval`). Models see
points, and records store them.

A hyperparameter with `when` exists only if others have certain values. A number is drawn for it
all the same, so that sample k stays sample k; an inactive one is absent from the values.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from determined.platform.search.canonical_json import dump
from determined.platform.search.sampling.randomness import Stream, between

Point = list[float]
Condition = tuple[tuple[str, ...], frozenset[str]]
_TYPES = ("const", "int", "double", "log", "log_int", "categorical")
_MOST_COMBINATIONS = 1_000_000  # of a grid with conditions, whose points are listed


@dataclass(frozen=True, slots=True)
class Leaf:
    """One hyperparameter: its path in the nested values, and its range.

    The kind of an `int` or `double` with a `step` is `steps`: its numbers count steps.
    `when` are the conditions for its existence: another hyperparameter, and the values that it
    must have one of, as canonical JSON.
    """

    path: tuple[str, ...]
    kind: str
    low: float = 0
    high: float = 0
    base: float = 10.0
    count: int | None = None
    values: tuple[Any, ...] = ()
    start: float = 0
    step: float = 0
    when: tuple[Condition, ...] = ()

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def is_searched(self) -> bool:
        return self.kind not in ("const", "categorical") or len(self.values) > 1

    @property
    def is_whole(self) -> bool:
        """Whether its numbers are integers."""
        return self.kind in ("int", "log_int", "steps", "categorical")

    @property
    def log_bounds(self) -> tuple[float, float]:
        """The bounds of a `log_int` on its scale, where an integer has the share around it."""
        return math.log(self.low - 0.5), math.log(self.high + 0.5)

    def nearest(self, logarithm: float) -> int:
        """Return the integer of a `log_int` for a number on its scale."""
        found = math.floor(math.exp(logarithm) + 0.5)
        return min(max(found, int(self.low)), int(self.high))

    def draw(self, stream: Stream) -> float:
        if self.kind in ("int", "steps"):
            return stream.integer(int(self.low), int(self.high) + 1)
        if self.kind == "categorical":
            return stream.integer(0, len(self.values))
        if self.kind == "log_int":
            return self.nearest(stream.uniform(*self.log_bounds))
        return stream.uniform(self.low, self.high)

    def value(self, number: float) -> Any:
        """Return the hyperparameter's value for a sampled number."""
        if self.kind in ("int", "log_int"):
            return int(number)
        if self.kind == "steps":
            return _stepped(self.start, self.step, int(number))
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
        is_int = self.kind in ("int", "log_int") or isinstance(self.step, int) and self.step > 0
        kinds = int if is_int else (int, float)
        low, high = self.low, self.high
        if self.kind == "log":
            low, high = sorted((self.base**low, self.base**high))
        elif self.kind == "steps":
            low, high = self.value(low), self.value(high)
        if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
            what = "an integer" if is_int else "a number"
            raise ValueError(f"expected {what} from {low!r} to {high!r}, got {value!r}")
        if self.kind == "steps":
            steps = round((value - self.start) / self.step)
            if not math.isclose(self.value(steps), value, rel_tol=1e-9, abs_tol=1e-12):
                around = sorted((self.value(max(steps - 1, 0)), self.value(steps)))
                raise ValueError(
                    f"expected {low!r} plus a multiple of {self.step!r}, such as "
                    f"{' or '.join(map(repr, around))}, got {value!r}"
                )
            return steps
        if self.kind != "log":
            return value
        return min(max(math.log(value) / math.log(self.base), self.low), self.high)

    def axis(self) -> list[Any]:
        """Return the values of a grid, in order."""
        if self.values:
            return list(self.values)
        if self.kind == "steps" and self.count is None:
            return [self.value(i) for i in range(int(self.high) + 1)]
        if self.count is None:
            raise ValueError(
                f"hyperparameters.{self.name}: a grid search needs `count`, the number of values "
                "to try."
            )
        count, low, width = self.count, self.low, self.high - self.low
        if self.kind == "log_int":
            return self._log_axis(self.count)
        if self.kind in ("int", "steps"):
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
        if self.kind == "steps":
            return [self.value(_round_half_away(step)) for step in steps]
        return [self.value(step) for step in steps]

    def _log_axis(self, count: int) -> list[Any]:
        """Return integers whose ratios are about equal, each once."""
        low, high = math.log(self.low), math.log(self.high)
        shares = [0.5] if count == 1 else [i / (count - 1) for i in range(count)]
        return list(dict.fromkeys(self.nearest(low + share * (high - low)) for share in shares))


class Space:
    """All hyperparameters of an experiment, in ascending order of their names at every level."""

    def __init__(self, hyperparameters: dict[str, Any]) -> None:
        self.leaves = tuple(_leaves(hyperparameters, (), set(_groups(hyperparameters, ()))))
        self.searched = tuple(leaf for leaf in self.leaves if leaf.is_searched)
        self.is_conditional = any(leaf.when for leaf in self.leaves)
        self._positions = {leaf.path: i for i, leaf in enumerate(self.searched)}
        self.leaves_by_path = {leaf.path: leaf for leaf in self.leaves}
        self.ordered = _parents_first(self.leaves) if self.is_conditional else self.leaves
        self._is_always = tuple(not leaf.when for leaf in self.searched)

    def draw(self, stream: Stream) -> Point:
        return [leaf.draw(stream) for leaf in self.searched]

    def values(
        self, point: Sequence[float], fixed: Mapping[int, Any] = MappingProxyType({})
    ) -> dict[str, Any]:
        """Return the nested values of a point; fixed ones, by position, as they were given."""
        numbers = enumerate(point)
        chosen = [
            (leaf, _value(leaf, *next(numbers), fixed) if leaf.is_searched else leaf.values[0])
            for leaf in self.leaves
        ]
        if self.is_conditional:
            active = self._active_paths(point)
            chosen = [(leaf, value) for leaf, value in chosen if leaf.path in active]
        return _nest(iter(chosen))

    def _active_paths(self, point: Sequence[float]) -> set[tuple[str, ...]]:
        """Return the paths of the hyperparameters that exist at a point."""
        active: set[tuple[str, ...]] = set()
        for leaf in self.ordered:
            if all(
                parent in active and self._text(parent, point) in allowed
                for parent, allowed in leaf.when
            ):
                active.add(leaf.path)
        return active

    def conditions(self, leaf: Leaf) -> Iterator[Condition]:
        """Return what a hyperparameter depends on, and what constants among these depend on."""
        for path, allowed in leaf.when:
            yield path, allowed
            parent = self.leaves_by_path[path]
            if not parent.is_searched:
                yield from self.conditions(parent)

    def _text(self, path: tuple[str, ...], point: Sequence[float]) -> str:
        leaf = self.leaves_by_path[path]
        if not leaf.is_searched:
            return dump(leaf.values[0])
        return dump(leaf.value(point[self._positions[path]]))

    def active(self, point: Sequence[float]) -> Sequence[bool]:
        """Return for each searched hyperparameter whether it exists at a point."""
        if not self.is_conditional:
            return self._is_always
        found = self._active_paths(point)
        return [leaf.path in found for leaf in self.searched]

    def settled(self, point: Point) -> Point:
        """Return a point whose inactive numbers are the same wherever they are inactive."""
        if not self.is_conditional:
            return point
        active = self.active(point)
        return [
            number if is_active else leaf.low
            for leaf, number, is_active in zip(self.searched, point, active, strict=True)
        ]

    def completed(self, point: Point, stream: Stream) -> Point:
        """Return a point whose inactive numbers are random: they say nothing about a result."""
        if not self.is_conditional:
            return point
        drawn = self.draw(stream)
        return [
            number if is_active else other
            for number, other, is_active in zip(point, drawn, self.active(point), strict=True)
        ]

    def fixed(self, chosen: dict[str, Any], path: str) -> dict[int, Any]:
        """Return nested values by the position of their hyperparameter; `path` is for messages.

        Raises:
            ValueError: for a name that is not searched, and for a value out of its range.
        """
        positions = self._positions
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
            self._check_conditions(self.leaves_by_path[names], given, where)
        return {positions[names]: value for names, value in given.items()}

    def _check_conditions(self, leaf: Leaf, given: dict[tuple[str, ...], Any], where: str) -> None:
        """Refuse a value for a hyperparameter that would not exist, or not always."""
        for parent, allowed in leaf.when:
            other = self.leaves_by_path[parent]
            name, values = other.name, " or ".join(sorted(allowed))
            if other.is_searched and parent not in given:
                raise ValueError(f"{where}: exists only with {name}: {values}; give {name} too.")
            value = given[parent] if other.is_searched else other.values[0]
            if dump(value) not in allowed:
                raise ValueError(
                    f"{where}: exists only with {name}: {values}, and {name} is {value!r} here."
                )
            self._check_conditions(other, given, where)

    def moved(self, point: Point, fixed: dict[int, Any]) -> Point:
        """Return a point with the numbers of fixed values."""
        return [
            self.searched[i].number(fixed[i]) if i in fixed else number
            for i, number in enumerate(point)
        ]

    def grid(self) -> Grid | ConditionalGrid:
        return ConditionalGrid(self.ordered) if self.is_conditional else Grid(self.leaves)


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


class ConditionalGrid:
    """All different combinations where some hyperparameters exist only with values of others."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        """`leaves` come after those on which they depend."""
        Grid(leaves)  # raises for repeated values
        self._leaves = leaves
        self._axes = [leaf.axis() for leaf in leaves]
        self._points: list[tuple[int | None, ...]] = [()]
        for leaf, axis in zip(leaves, self._axes, strict=True):
            self._points = [
                (*point, place)
                for point in self._points
                for place in (range(len(axis)) if self._exists(leaf, point) else (None,))
            ]
            if len(self._points) > _MOST_COMBINATIONS:
                raise ValueError(
                    f"hyperparameters: a grid with `when` can have {_MOST_COMBINATIONS:,} points, "
                    "and this one has more. Give fewer values, or use `random`."
                )

    def _exists(self, leaf: Leaf, point: tuple[int | None, ...]) -> bool:
        places = {other.path: i for i, other in enumerate(self._leaves[: len(point)])}
        for parent, allowed in leaf.when:
            place = point[places[parent]]
            if place is None or dump(self._axes[places[parent]][place]) not in allowed:
                return False
        return True

    def __len__(self) -> int:
        return len(self._points)

    def __getitem__(self, index: int) -> dict[str, Any]:
        chosen = [
            (leaf, axis[place])
            for leaf, axis, place in zip(self._leaves, self._axes, self._points[index], strict=True)
            if place is not None
        ]
        return _nest(iter(sorted(chosen, key=lambda entry: entry[0].path)))


def _parents_first(leaves: Sequence[Leaf]) -> tuple[Leaf, ...]:
    """Return hyperparameters after those that they depend on; refuse impossible conditions."""
    by_path = {leaf.path: leaf for leaf in leaves}
    for leaf in leaves:
        for parent, allowed in leaf.when:
            _check_condition(leaf, parent, allowed, by_path)
    ordered: dict[tuple[str, ...], Leaf] = {}
    while len(ordered) < len(leaves):
        ready = [
            leaf
            for leaf in leaves
            if leaf.path not in ordered and all(parent in ordered for parent, _ in leaf.when)
        ]
        if not ready:
            names = ", ".join(leaf.name for leaf in leaves if leaf.path not in ordered)
            raise ValueError(f"hyperparameters: the conditions of {names} go round in a circle.")
        ordered[ready[0].path] = ready[0]
    return tuple(ordered.values())


def _check_condition(
    leaf: Leaf,
    parent: tuple[str, ...],
    allowed: frozenset[str],
    by_path: dict[tuple[str, ...], Leaf],
) -> None:
    where, name = f"hyperparameters.{leaf.name}.when", ".".join(parent)
    other = by_path.get(parent)
    if other is None:
        known = ", ".join(one.name for one in by_path.values() if one.path != leaf.path) or "none"
        raise ValueError(f"{where}: there is no hyperparameter {name}; there are: {known}.")
    if other.kind in ("double", "log", "log_int"):
        raise ValueError(
            f"{where}: {name} has any number of values; expected a hyperparameter with values to "
            "compare: categorical, const, int, or a double with a step."
        )
    for text in sorted(allowed):
        try:
            if other.values:
                if text not in {dump(value) for value in other.values}:
                    options = ", ".join(map(dump, other.values))
                    raise ValueError(f"expected one of {options}, got {text}")
            else:
                other.number(json.loads(text))
        except ValueError as error:
            raise ValueError(f"{where}.{name}: {error}: this is never so.") from None


def _conditions(when: Any, where: str, groups: set[tuple[str, ...]]) -> tuple[Condition, ...]:
    """Return conditions by path: names with dots, or nested as the hyperparameters are."""
    if not isinstance(when, dict) or not when:
        raise ValueError(
            f"{where}.when: expected names of other hyperparameters with their values, such as "
            f"{{booster: gbtree}}, got {when!r}."
        )
    return tuple(
        (
            tuple(part for name in names for part in name.split(".")),
            frozenset(map(dump, value if isinstance(value, (list, tuple)) else [value])),
        )
        for names, value in _entries(when, groups, ())
    )


def _leaves(
    group: dict[str, Any], path: tuple[str, ...], groups: set[tuple[str, ...]]
) -> Iterator[Leaf]:
    for name in sorted(group, key=str):
        entry, where = group[name], (*path, str(name))
        if not isinstance(entry, dict):
            yield Leaf(where, "const", values=(entry,))
        elif "type" in entry:
            yield _typed(entry, where, groups)
        elif entry:
            yield from _leaves(entry, where, groups)
        else:
            yield Leaf(where, "const", values=({},))


def _groups(group: dict[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, entry in group.items():
        if isinstance(entry, dict) and "type" not in entry:
            yield (*path, str(name))
            yield from _groups(entry, (*path, str(name)))


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


def _typed(entry: dict[str, Any], path: tuple[str, ...], groups: set[tuple[str, ...]]) -> Leaf:
    leaf = _range(entry, path)
    if entry.get("when") is None:
        return leaf
    return replace(leaf, when=_conditions(entry["when"], f"hyperparameters.{leaf.name}", groups))


def _range(entry: dict[str, Any], path: tuple[str, ...]) -> Leaf:
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
    if kind == "log_int" and low < 1:
        raise ValueError(f"{where}.minval: expected an integer of at least 1, got {low!r}.")
    if entry.get("step") is not None:
        return _with_step(entry, path, kind)
    return Leaf(path, kind, low=low, high=high, base=float(base), count=entry.get("count"))


def _with_step(entry: dict[str, Any], path: tuple[str, ...], kind: str) -> Leaf:
    low, high, step = entry["minval"], entry["maxval"], entry["step"]
    where = f"hyperparameters.{'.'.join(path)}"
    if kind not in ("int", "double"):
        raise ValueError(f"{where}.step: only int and double take it; this is a {kind}.")
    if not 0 < step <= high - low:
        raise ValueError(
            f"{where}.step: expected a number above 0, at most maxval - minval, got {step!r}."
        )
    number = int if kind == "int" else float
    most = int((Decimal(repr(high)) - Decimal(repr(low))) / Decimal(repr(step)))
    return Leaf(
        path, "steps", high=most, count=entry.get("count"), start=number(low), step=number(step)
    )


def _stepped(start: float, step: float, number: int) -> float:
    """Return `start + number * step` in decimal arithmetic: 3 steps of 0.1 are 0.3."""
    if isinstance(start, int) and isinstance(step, int):
        return start + number * step
    return float(Decimal(repr(start)) + number * Decimal(repr(step)))


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
