"""How much each hyperparameter matters, by PED-ANOVA (Watanabe, Bansal and Hutter, 2023). Pure.

A hyperparameter matters to the extent that its distribution among the best trials differs from
that among all: importance is the Pearson divergence between the two densities, here on a grid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

_GRID = 50
FEWEST = 4


def importance(
    columns: Mapping[str, Sequence[Any]], values: Sequence[float], smaller_is_better: bool
) -> dict[str, float]:
    """The importance of each hyperparameter, largest first; they sum to 1.

    Hyperparameters that never differ are left out; with too few trials the result is empty.
    """
    import numpy as np

    scores = np.asarray(values, "f8") * (1 if smaller_is_better else -1)
    if len(scores) < FEWEST:
        return {}
    count = max(2, math.ceil(len(scores) * _top_share(len(scores))))
    is_top = np.zeros(len(scores), bool)
    is_top[np.argsort(scores, kind="stable")[:count]] = True
    found = {}
    for name, column in columns.items():
        samples = _numbers(column)
        if samples is None:
            continue
        found[name] = _divergence(samples[is_top], samples)
    total = sum(found.values())
    shares = {name: value / total if total > 0 else 0.0 for name, value in found.items()}
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _top_share(count: int) -> float:
    """The share of trials that count as best: a tenth, or more if there are few trials."""
    return max(0.1, min(0.5, 6 / count))


def _numbers(column: Sequence[Any]) -> np.ndarray | None:
    """A column as numbers from 0 to 1, or as indices of categories; None if all are equal."""
    import numpy as np

    if all(type(v) in (int, float) and math.isfinite(v) for v in column):
        numbers = np.asarray(column, "f8")
        low, high = float(numbers.min()), float(numbers.max())
        if low == high:
            return None
        if low > 0 and high / low > 30:  # such as a learning rate, whose logarithm was sampled
            numbers, low, high = np.log(numbers), math.log(low), math.log(high)
        return (numbers - low) / (high - low)
    names = {text: number for number, text in enumerate(dict.fromkeys(map(repr, column)))}
    if len(names) == 1:
        return None
    return np.asarray([names[repr(value)] for value in column], "i8")


def _divergence(top: np.ndarray, everything: np.ndarray) -> float:
    import numpy as np

    size = int(everything.max()) + 1 if everything.dtype.kind == "i" else 0
    among_top, among_all = _density(top, size), _density(everything, size)
    return float(np.sum(among_all * (among_top / among_all - 1) ** 2))


def _density(samples: np.ndarray, num_categories: int) -> np.ndarray:
    """A density over categories or the grid, nowhere zero; it sums to 1."""
    import numpy as np

    if num_categories:
        counts = np.bincount(samples, minlength=num_categories) + 1.0 / num_categories
        weights = np.asarray(counts, "f8")
    else:
        width = max(1.06 * float(samples.std()) * len(samples) ** -0.2, 1 / _GRID)
        grid = np.linspace(0, 1, _GRID)[:, None]
        histogram, edges = np.histogram(samples, bins=4 * _GRID, range=(0, 1))
        middles = (edges[:-1] + edges[1:]) / 2
        kernel = np.exp(-(((grid - middles[None, :]) / width) ** 2) / 2)
        weights = kernel @ histogram + 1e-3 * len(samples) / _GRID
    return np.asarray(weights / weights.sum())
