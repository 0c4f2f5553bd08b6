"""What gets slower or larger in one long run: its last batches over its first."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence

from benchmarks.platform.figure import Figure
from benchmarks.platform.marks import Mark, read_marks
from benchmarks.platform.site import open_site

_PIECES = 200  # between two marks
_SAVES = 20
_GOAL = 1.2


def measure(is_quick: bool) -> list[Figure]:
    batches = 20_000 if is_quick else 400_000
    with open_site(slots=1) as site:
        marks = site.folder / "marks"
        variables = {
            "BATCHES": str(batches + 1),
            "MARKS": str(marks),
            "MARK_EVERY": str(batches // _PIECES),
            "SAVE_EVERY": str(batches // _SAVES),
            "VALIDATE_EVERY": str(batches // _SAVES),
        }
        site.finish(site.create("net", variables=variables, hyperparameters={"lr": 0.1}))
        return compare(read_marks(marks))


def compare(marks: Sequence[Mark]) -> list[Figure]:
    """Compare the last tenth of a run with its second: the first fills caches."""
    tenth = len(marks) // 10
    parts = {"at the end": marks[-tenth - 1 :], "at the beginning": marks[tenth : 2 * tenth + 1]}
    paces = {name: [statistics.median(_paces(part))] for name, part in parts.items()}
    sizes = {name: [part[-1].megabytes] for name, part in parts.items()}
    over = f"after {marks[-1].batch:,} batches over after {marks[tenth].batch:,}"
    return [
        Figure(f"{what}, {over}", _ratio(samples), "times", _GOAL, samples=samples)
        for what, samples in {
            "processor time per batch (µs)": paces,
            "memory of the trial (MB)": sizes,
        }.items()
    ]


def _paces(marks: Sequence[Mark]) -> list[float]:
    """Microseconds per batch, background threads included."""
    return [
        1e6 * (after.cpu_seconds - before.cpu_seconds) / (after.batch - before.batch)
        for before, after in itertools.pairwise(marks)
    ]


def _ratio(samples: dict[str, list[float]]) -> float:
    return samples["at the end"][0] / samples["at the beginning"][0]
