"""Draw the platform's figures: how far each is from its goal, on one scale for all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.platform.figure import Figure, number

_MEETS, _MISSES = "#5f9e6e", "#d1495b"
_LEAST, _MOST = 1e-3, 1e2


def share_of_goal(figure: Figure) -> float:
    """What a figure is of its goal: below 1 it meets it, whichever way the goal points."""
    assert figure.goal
    value = max(figure.value, 1e-9)
    share = figure.goal / value if figure.is_floor else value / figure.goal
    return min(max(share, _LEAST), _MOST)


def draw(figures: Sequence[Figure], path: Path) -> None:
    """Write the picture to `path`."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [figure for figure in reversed(figures) if figure.goal]  # of none there is no share
    drawing, axes = pyplot.subplots(figsize=(11, 1 + 0.26 * len(rows)), layout="constrained")
    _draw_rows(axes, rows)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set_xlabel("share of the goal (left of 1: reached)")
    axes.grid(axis="x", alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, dpi=120)
    pyplot.close(drawing)


def _draw_rows(axes: Any, rows: Sequence[Figure]) -> None:
    shares = [share_of_goal(figure) for figure in rows]
    colors = [_MEETS if figure.verdict == "meets" else _MISSES for figure in rows]
    axes.scatter(shares, range(len(rows)), c=colors, s=36, zorder=3)
    for row, (figure, share) in enumerate(zip(rows, shares, strict=True)):
        axes.plot([share, 1.0], [row, row], color=colors[row], linewidth=1.5)
        text = f"{number(figure.value)} {figure.unit}".strip()
        beside = {"xytext": (-6, 0), "ha": "right"} if share <= 1 else {"xytext": (6, 0)}
        axes.annotate(
            text, (share, row), textcoords="offset points", va="center", fontsize=7, **beside
        )
    axes.set_yticks(range(len(rows)), [figure.what for figure in rows], fontsize=7)
    axes.margins(x=0.15, y=0.02)
