"""Draw the measured ratios, one row per workload, and the growth curves."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

from benchmarks.report import numbers

_COLORS = {"ours": "#d1495b", "Lightning": "#66799e", "Accelerate": "#8a6fb0", "ignite": "#5f9e6e"}


def draw(results: Mapping[str, Any], path: pathlib.Path) -> None:
    """Write the picture to `path`."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    ratios = [r for r in results["results"] if r["kind"] == "ratio" and r["unit"] == "µs"]
    growths = [r for r in results["results"] if r["kind"] == "growth"]
    figure, (left, right) = pyplot.subplots(
        1, 2, figsize=(11, 4.8), width_ratios=(3, 2), layout="constrained"
    )
    _draw_ratios(left, ratios)
    _draw_growth(right, growths)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def _draw_ratios(axes: Any, ratios: list[Mapping[str, Any]]) -> None:
    seen: set[str] = set()
    for row, result in enumerate(reversed(ratios)):
        for name, number in numbers(result).items():
            who, _, is_bare = name.partition(", ")
            axes.errorbar(
                number.median,
                row + (list(_COLORS).index(who) - 1.5) * 0.16,
                xerr=[[number.median - number.low], [number.high - number.median]],
                fmt="o",
                markersize=5,
                elinewidth=1,
                color=_COLORS[who],
                markerfacecolor="white" if is_bare else _COLORS[who],
                label=None if name in seen else name,
            )
            seen.add(name)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_xscale("log")
    ticks = [0.5, 0.7, 1, 1.5, 2, 3, 5]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(range(len(ratios)), [r["title"] for r in reversed(ratios)])
    axes.set_xlabel("time per batch / time of a plain torch loop (smaller is better)")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(fontsize=8, loc="best")


def _draw_growth(axes: Any, growths: list[Mapping[str, Any]]) -> None:
    for result in growths:
        found = numbers(result)
        sizes = [max(float(point), 1.0) for point in found]
        axes.plot(sizes, [n.median for n in found.values()], marker="o", label=result["title"])
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=10)
    axes.set_xlabel("size")
    axes.set_ylabel("µs per batch over the plain loop")
    axes.grid(alpha=0.3)
    if growths:
        axes.legend(fontsize=8)
