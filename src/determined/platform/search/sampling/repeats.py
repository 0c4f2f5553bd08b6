"""Keep a model's proposals away from earlier trials: near-duplicates teach little."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from determined.platform.search.space import Leaf, Point


def apart(
    leaves: Sequence[Leaf], proposed: Point, drawn: Point, tried: Collection[Point], number: int
) -> Point:
    """Return the proposal, with values of a random sample where it would repeat a trial.

    Divide the space into as many cells as there are trials: a point within a quarter of a cell of
    a trial, in all values, repeats it. Cells shrink with each trial, so models can still refine.
    """
    width, result = _cell(leaves, number), list(proposed)
    for place in _order(leaves, number):
        if not any(_is_near(leaves, result, point, width) for point in tried):
            break
        result[place] = drawn[place]
    return result


def _order(leaves: Sequence[Leaf], number: int) -> list[int]:
    """Return the order in which to replace values: ranges before categories; varies by trial."""
    places = sorted(range(len(leaves)), key=lambda place: (place - number) % len(leaves))
    return sorted(places, key=lambda place: leaves[place].kind == "categorical")


def _cell(leaves: Sequence[Leaf], number: int) -> float:
    """Return the width of a cell, as a share of each range, with one cell per trial."""
    ranges, combinations = 0, 1
    for leaf in leaves:
        if leaf.kind == "categorical":
            combinations *= len(leaf.values)
        else:
            ranges += 1
    return math.pow(min(1.0, combinations / (number + 1)), 1 / max(ranges, 1))


def _is_near(leaves: Sequence[Leaf], one: Point, other: Point, width: float) -> bool:
    for leaf, a, b in zip(leaves, one, other, strict=True):
        if leaf.kind == "categorical":
            if a != b:
                return False
        elif abs(a - b) > width / 4 * (leaf.high - leaf.low):
            return False
    return True
