"""The numbers as tables, with the goal that each has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.dashboard import answers, pages

Rows = dict[str, dict[str, Any]]


def show(result: dict[str, Any]) -> str:
    """All that was measured, in Markdown."""
    machine = result["machine"]
    parts = [f"{machine['cores']} cores, load {machine['load_before']} to {machine['load_after']}."]
    for name, title in _TITLES.items():
        if name in result:
            parts += [f"## {title}", _PARTS[name](result[name])]
    return "\n\n".join(parts)


def _answers(rows: Rows) -> str:
    columns = ("first_ms", "median_ms", "server_cpu_ms", "wire_kb", "content_kb")
    return _table(rows, columns, {"median_ms": answers.MOST_MILLISECONDS})


def _pages(rows: Rows) -> str:
    columns = ("shown_ms", "browser_cpu_ms", "server_cpu_ms", "requests", "wire_kb")
    return _table(rows, columns, {"shown_ms": pages.MOST_MILLISECONDS})


def _zoom(rows: Rows) -> str:
    columns = ("shown_ms", "browser_cpu_ms", "count")
    return _table(rows, columns, {"shown_ms": pages.MOST_ZOOM_MILLISECONDS})


def _peers(rows: Rows) -> str:
    return _table(rows, _columns_of(rows.values()))


def _ticks(rows: Rows) -> str:
    measured = {name: row for name, row in rows.items() if isinstance(row, dict)}
    return _table(measured, _columns_of(measured.values()))


def _facts(facts: dict[str, Any]) -> str:
    return "\n".join(f"- {name}: {value}" for name, value in facts.items())


_TITLES = {
    "answers": "Answers of the server (goal: median under 100 ms)",
    "pages": "First view of each page (goal: under 1,000 ms)",
    "zoom": "Zoom into 50 curves of 1,000,000 points (goal: under 300 ms)",
    "ticks": "A live tick of 100 new points",
    "memory": "Memory of the server",
    "training": "Time per batch while every stream is followed",
    "flood": "Time per batch while unauthorized clients flood the dashboard",
    "peers": "The same 200,000 points and 2,000 trials elsewhere",
}
_PARTS: dict[str, Any] = {
    "answers": _answers,
    "pages": _pages,
    "zoom": _zoom,
    "ticks": _ticks,
    "memory": _facts,
    "training": _facts,
    "flood": _facts,
    "peers": _peers,
}


def _columns_of(rows: Iterable[dict[str, Any]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for row in rows for name in row))


def _table(rows: Rows, columns: tuple[str, ...], most: dict[str, float] | None = None) -> str:
    """Rows in Markdown; what misses its goal is in bold."""
    lines = [
        f"| | {' | '.join(name.replace('_', ' ') for name in columns)} |",
        f"|---|{'---:|' * len(columns)}",
    ]
    for name, row in rows.items():
        cells = [_cell(row.get(key, ""), (most or {}).get(key)) for key in columns]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(value: Any, most: float | None) -> str:
    return f"**{value}**" if most is not None and value > most else str(value)
