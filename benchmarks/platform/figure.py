"""One measured figure with its goal, and a table of many."""

from __future__ import annotations

import dataclasses
import os
import statistics
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Samples = Mapping[str, list[float]]


@dataclasses.dataclass(frozen=True)
class Figure:
    """What was measured, and what it should be: at most `goal`, or at least with `is_floor`.

    `samples` are the single measurements behind it, by contender, in the order of their rounds.
    """

    what: str
    value: float
    unit: str = "s"
    goal: float | None = None
    is_floor: bool = False
    samples: Samples = dataclasses.field(default_factory=dict)
    load: float = dataclasses.field(default_factory=lambda: round(os.getloadavg()[0], 1))

    @property
    def verdict(self) -> str:
        if self.goal is None:
            return ""
        is_met = self.value >= self.goal if self.is_floor else self.value <= self.goal
        return "meets" if is_met else "MISSES"

    def as_data(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "verdict": self.verdict}


def in_turns(rounds: int, **contenders: Callable[[], float]) -> dict[str, list[float]]:
    """Call everybody once a round, in an order that changes, so that all see the same machine."""
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for _ in range(rounds):
        for name in names:
            samples[name].append(contenders[name]())
        names.reverse()
    return samples


def difference(samples: Samples, name: str, other: str) -> float:
    """The median, over rounds, of how much more one takes than another."""
    return statistics.median(a - b for a, b in zip(samples[name], samples[other], strict=True))


def ratio(samples: Samples, name: str, other: str) -> float:
    """The median, over rounds, of how many times as much one takes as another."""
    return statistics.median(a / b for a, b in zip(samples[name], samples[other], strict=True))


def median(samples: Samples, name: str) -> float:
    return statistics.median(samples[name])


def table(figures: Iterable[Figure]) -> str:
    """Return the figures as Markdown, which reads well in a terminal, too."""
    rows = [["measure", "figure", "goal", "", "behind it (medians)", "load"]]
    for figure in figures:
        sign = "at least" if figure.is_floor else "at most"
        goal = "" if figure.goal is None else f"{sign} {figure.goal:,g}"
        behind = ", ".join(
            f"{name} {number(statistics.median(values))}"
            for name, values in figure.samples.items()
            if values
        )
        value = f"{number(figure.value)} {figure.unit}".strip()
        rows.append([figure.what, value, goal, figure.verdict, behind, f"{figure.load}"])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    return "\n".join([lines[0], "|" + "---|" * len(widths), *lines[1:]])


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
