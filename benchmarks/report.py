"""From measured numbers to a table, a block in docs/performance.md and a picture.

python -m benchmarks.report [benchmarks/results/full.json]
"""

from __future__ import annotations

import json
import pathlib
import statistics
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_PAGE = _ROOT / "docs" / "performance.md"
_PICTURE = _ROOT / "docs" / "images" / "performance.png"
_BEGIN, _END = "<!-- numbers: written by python -m benchmarks.report -->", "<!-- end of numbers -->"


class Number(NamedTuple):
    """A median over rounds, with its quartiles."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(values: list[float]) -> Number:
        if len(values) < 2:
            return Number(values[0], values[0], values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return Number(median, low, high)


def numbers(result: Mapping[str, Any], values: str = "values") -> dict[str, Number]:
    """Return each contender's number: compared with the plain loop of the same round."""
    columns, kind = result[values], result["kind"]
    if kind in ("value", "growth"):
        return {name: Number.of(column) for name, column in columns.items()}
    plain = columns["plain"]

    def against_plain(mine: float, theirs: float) -> float:
        return mine / theirs if kind == "ratio" else mine - theirs

    return {
        name: Number.of([against_plain(*pair) for pair in zip(column, plain, strict=True)])
        for name, column in columns.items()
        if name != "plain"
    }


def tables(results: Mapping[str, Any]) -> list[list[list[str]]]:
    """Return rows of text: what is compared with the plain loop, and what grows."""
    compared = [r for r in results["results"] if r["kind"] != "growth"]
    names = list(dict.fromkeys(name for r in compared for name in r["values"] if name != "plain"))
    first = [["", "plain loop", *names]]
    for result in compared:
        found = numbers(result)
        plain = result["values"].get("plain")
        usual = "" if plain is None else f"{statistics.median(plain):.3g} {result['unit']}"
        cells = [_cell(found[name], result, name) if name in found else "" for name in names]
        first.append([result["title"], usual, *cells])
    second = [["grows", "µs per batch over the plain loop"]]
    for result in results["results"]:
        if result["kind"] == "growth":
            points = (f"{point}: {n.median:+.1f}" for point, n in numbers(result).items())
            second.append([result["title"], ", ".join(points)])
    return [table for table in (first, second) if len(table) > 1]


def _cell(number: Number, result: Mapping[str, Any], name: str) -> str:
    if result["kind"] == "ratio":
        text = f"{number.median:.3f} ({number.low:.3f}-{number.high:.3f})"
    else:
        text = f"{number.median:+.2f} {result['unit']}"
    goal = result["goals"].get(name)
    if goal is None:
        return text
    return f"{text} {'meets' if number.median <= goal else 'MISSES'} {goal:g}"


def text(results: Mapping[str, Any]) -> str:
    """Return the tables for a terminal, one line per contender."""
    lines = [_setting(results)]
    for result in results["results"]:
        plain = result["values"].get("plain")
        usual = f", plain loop {statistics.median(plain):.4g} {result['unit']}" if plain else ""
        lines += ["", f"{result['title']}{usual}"]
        cpu = numbers(result, "cpu") if "cpu" in result else {}
        for name, number in numbers(result).items():
            line = f"  {name:<18} {_cell(number, result, name)}"
            if name in cpu:
                line += f"  (quickest turns {_quickest(result, name):.3f}"
                line += f", processor time {cpu[name].median:.3f})"
            lines.append(line)
    return "\n".join(lines)


def _quickest(result: Mapping[str, Any], name: str) -> float:
    """Return the ratio of the quickest tenths of turns, which a busy machine disturbs least."""
    mine, plain = (
        statistics.quantiles(result["values"][who], n=10, method="inclusive")[0]
        for who in (name, "plain")
    )
    return float(mine / plain)


def _setting(results: Mapping[str, Any]) -> str:
    machine = results["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"{machine['date']}, {machine['processor']}, {machine['cores']} cores, load "
        f"{machine['load_before']} before the run, Python {machine['python']}, {versions}."
    )


def markdown(results: Mapping[str, Any]) -> str:
    """Return the block of docs/performance.md."""
    blocks = [_setting(results)]
    for table in tables(results):
        head, *rows = ["| " + " | ".join(row) + " |" for row in table]
        blocks.append("\n".join([head, "|" + "---|" * len(table[0]), *rows]))
    return "\n\n".join(blocks)


def update(page: str, block: str, marks: tuple[str, str] = (_BEGIN, _END)) -> str:
    """Return the page with the block between its two marks replaced."""
    begin, end = marks
    before, found, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found and found_end):
        raise ValueError(f"The page must have the lines {begin!r} and {end!r}.")
    return f"{before}{begin}\n\n{block}\n\n{end}{after}"


def main() -> None:
    default = _ROOT / "benchmarks" / "results" / "full.json"
    results = json.loads(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else default).read_text())
    _PAGE.write_text(update(_PAGE.read_text(), markdown(results)))
    print(f"Updated {_PAGE}")
    from benchmarks.picture import draw

    draw(results, _PICTURE)
    print(f"Drew {_PICTURE}")


if __name__ == "__main__":
    main()
