"""The model of `sampler: auto`: one Gaussian process over the results at all lengths.

Length is an axis of its own, so short trainings say as much about long ones as they turn out to.
Candidates do not depend on rounding, and are compared by rounded numbers: an answer is a function
of the request alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

import numpy as np

from determined.platform.search.canonical_json import dump
from determined.platform.search.sampling.gaussian_process import Array, Axes, GaussianProcess
from determined.platform.search.sampling.model import ProposalRequest
from determined.platform.search.space import Leaf, Point, Space

_ANYWHERE, _NEAR, _BEST = 400, 40, 8  # candidates: random ones, and some near each of the best
_REFINED, _CLOSER = 5, 30  # candidates that are refined, and how many are tried around each
_WIDTHS = (0.2, 0.1, 0.03)  # of steps around the best, then around the candidates
_DIGITS = 9


class AutoModel:
    """Proposes the point that is expected to improve most at the longest length seen."""

    def __init__(self, space: Space) -> None:
        self._leaves = space.searched
        self._logs = [(i, leaf) for i, leaf in enumerate(self._leaves) if leaf.kind == "log_int"]
        self._conditions = list(_conditions(space))
        self._is_category = np.array([leaf.kind == "categorical" for leaf in self._leaves])
        self._sizes = np.array([_num_values(leaf) for leaf in self._leaves], dtype=float)
        self._axes = Axes(np.append(self._is_category, False), trend=len(self._leaves))

    def propose(self, request: ProposalRequest) -> Point:
        random = np.random.RandomState(request.seed)
        pending = self._encode([point for _, point in request.pending])
        points = self._encode([point for _, point, _, _ in request.observed])
        process = GaussianProcess(
            self._axes,
            np.column_stack([points, _lengths([units for _, _, _, units in request.observed])]),
            np.array([value for _, _, value, _ in request.observed]),
        )
        if len(pending):
            process.believe(_at_end(pending))
        return self._decode(self._best(random, process, points))

    def _best(self, random: np.random.RandomState, process: GaussianProcess, tried: Array) -> Array:
        distinct = np.unique(tried, axis=0)
        means, _ = process.predict(_at_end(distinct))
        goal = float(means.min())
        best = distinct[np.argsort(np.round(means, _DIGITS), kind="stable")[:_BEST]]
        near = self._step(random, np.repeat(best, _NEAR, axis=0), _WIDTHS[0])
        candidates = np.concatenate([self._anywhere(random, _ANYWHERE), near])
        for width in _WIDTHS[1:]:
            chosen = self._most_promising(process, candidates, goal)
            closer = self._step(random, np.repeat(chosen, _CLOSER, axis=0), width)
            candidates = np.concatenate([chosen, closer])
        found: Array = self._most_promising(process, candidates, goal)[0]
        return found

    def _most_promising(self, process: GaussianProcess, candidates: Array, goal: float) -> Array:
        gains = log_expected_improvement(*process.predict(_at_end(candidates)), goal)
        found: Array = candidates[np.argsort(-np.round(gains, _DIGITS), kind="stable")[:_REFINED]]
        return found

    def _anywhere(self, random: np.random.RandomState, count: int) -> Array:
        return self._snap(random.uniform(size=(count, len(self._leaves))))

    def _step(self, random: np.random.RandomState, points: Array, width: float) -> Array:
        """Return points near these: some numbers moved, a few categories drawn again."""
        count, size = points.shape
        widths = width * 10 ** random.uniform(-1, 0.3, size=(count, 1))
        moved = np.abs(points + widths * random.normal(size=points.shape))
        moved = np.clip(1 - np.abs(1 - moved), 0, 1)  # reflected at both ends
        redrawn = random.uniform(size=points.shape)
        odds = np.where(self._is_category, 0.15, max(2 / size, 0.4))
        changes = random.uniform(size=points.shape) < odds
        return self._snap(np.where(changes, np.where(self._is_category, redrawn, moved), points))

    def _snap(self, points: Array) -> Array:
        """Move whole numbers and categories to the middle of their cells."""
        cells = np.minimum(np.floor(points * self._sizes), self._sizes - 1)
        snapped: Array = np.where(
            self._sizes > 0, (cells + 0.5) / np.maximum(self._sizes, 1), np.round(points, 6)
        )
        for column, leaf in self._logs:
            snapped[:, column] = [
                _to_share(leaf, _from_share(leaf, share)) for share in snapped[:, column].tolist()
            ]
        return self._settle(snapped)

    def _settle(self, points: Array) -> Array:
        """Give inactive hyperparameters one number: what differs in nothing else is equal."""
        active = np.ones(points.shape, dtype=bool)
        for column, parent, cells in self._conditions:
            if parent is None:
                active[:, column] &= bool(cells)
                continue
            cell = np.floor(points[:, parent] * self._sizes[parent])
            active[:, column] &= np.isin(cell, cells) & active[:, parent]
        settled: Array = np.where(active, points, 0.5)
        return settled

    def _encode(self, points: list[Point]) -> Array:
        rows = [
            [_to_share(leaf, number) for leaf, number in zip(self._leaves, point, strict=True)]
            for point in points
        ]
        encoded = np.array(rows, dtype=float).reshape(len(points), len(self._leaves))
        return self._settle(encoded)

    def _decode(self, row: Array) -> Point:
        shares = row.tolist()
        return [_from_share(leaf, share) for leaf, share in zip(self._leaves, shares, strict=True)]


def _num_values(leaf: Leaf) -> int:
    """Return how many values a hyperparameter has; 0 for a range of real numbers."""
    if leaf.kind == "categorical":
        return len(leaf.values)
    return int(leaf.high) - int(leaf.low) + 1 if leaf.kind in ("int", "steps") else 0


def _conditions(space: Space) -> Iterator[tuple[int, int | None, list[int]]]:
    """Return columns with a condition: the column it depends on, and the cells that allow it.

    A column that depends on a constant has no such column; its list says whether it exists.
    """
    columns = {leaf.path: i for i, leaf in enumerate(space.searched)}
    for leaf in space.ordered if space.is_conditional else ():
        for path, allowed in space.conditions(leaf) if leaf.is_searched else ():
            parent = space.leaves_by_path[path]
            if parent.is_searched:
                numbers = [int(parent.number(json.loads(text))) for text in sorted(allowed)]
                yield columns[leaf.path], columns[path], [n - int(parent.low) for n in numbers]
            else:
                yield columns[leaf.path], None, [0] * (dump(parent.values[0]) in allowed)


def _to_share(leaf: Leaf, number: float) -> float:
    """Return a sampled number as a share of its range."""
    if leaf.kind == "log_int":
        low, high = leaf.log_bounds
        return round((math.log(number) - low) / (high - low), _DIGITS)
    if count := _num_values(leaf):
        return (int(number) - int(leaf.low) + 0.5) / count
    return number / 2 / _half(leaf) - leaf.low / 2 / _half(leaf)


def _from_share(leaf: Leaf, share: float) -> float:
    if leaf.kind == "log_int":
        low, high = leaf.log_bounds
        return leaf.nearest(low + share * (high - low))
    if count := _num_values(leaf):
        return int(leaf.low) + min(int(share * count), count - 1)
    number = leaf.low + share * _half(leaf) + share * _half(leaf)
    return min(max(number, leaf.low), math.nextafter(leaf.high, leaf.low))


def _half(leaf: Leaf) -> float:
    """Return half the width of a range: the width of the widest is no finite number."""
    return leaf.high / 2 - leaf.low / 2


def _lengths(units: list[int]) -> Array:
    """Return training lengths on a logarithmic scale that ends at 1."""
    return 1 + np.log(np.maximum(units, 1) / max(*units, 1)) / 4


def _at_end(points: Array) -> Array:
    return np.column_stack([points, np.ones(len(points))])


def log_expected_improvement(means: Array, deviations: Array, goal: float) -> Array:
    """Return the logarithm of how far below the goal a value is expected to be, counting 0 above.

    The logarithm still compares candidates whose improvement is too small for a float.
    """
    z = (goal - means) / deviations
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    below = np.array([0.5 * math.erfc(-one / math.sqrt(2)) for one in z.tolist()])
    near = np.log(np.maximum(z * below + density, 1e-300))
    far = -0.5 * z**2 - 2.0 * np.log(np.maximum(-z, 1.0)) - 0.5 * math.log(2 * math.pi)
    gains: Array = np.log(deviations) + np.where(z < -5, far, near)
    return gains
