"""What the platform costs a trial per batch, over the same script alone with the same threads."""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.platform.figure import Figure, in_turns, ratio
from benchmarks.platform.site import SCRIPTS, Site, open_site

_MARK_EVERY = 100
_SKIPPED = 5  # of the first pieces: caches are cold


def measure(is_quick: bool) -> list[Figure]:
    batches, rounds = (3_000, 3) if is_quick else (20_000, 9)
    with open_site(slots=1) as site:
        samples = in_turns(
            rounds,
            platform=lambda: _on_the_platform(site, batches),
            alone=lambda: _alone(site.folder, batches),
        )
    return [
        Figure(
            "time per batch of a tiny net, over the same script alone",
            ratio(samples, "platform", "alone"),
            "times",
            goal=1.01,
            samples=samples,
        )
    ]


def _variables(marks: Path, batches: int) -> dict[str, str]:
    marks.unlink(missing_ok=True)
    return {"MARKS": str(marks), "MARK_EVERY": str(_MARK_EVERY), "BATCHES": str(batches)}


def _on_the_platform(site: Site, batches: int) -> float:
    marks = site.folder / "marks"
    variables = _variables(marks, batches)
    site.finish(site.create("net", variables=variables, hyperparameters={"lr": 0.1}))
    return _microseconds(marks)


def _alone(folder: Path, batches: int) -> float:
    marks = folder / "marks"
    environment = {**os.environ, **_variables(marks, batches)}
    subprocess.run(
        [sys.executable, str(SCRIPTS / "net.py")],
        env=environment,
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return _microseconds(marks)


def _microseconds(marks: Path) -> float:
    """The median over pieces of training: a busy machine disturbs some, not most."""
    times = [float(line.split()[2]) for line in marks.read_text().splitlines()]
    pieces = [after - before for before, after in itertools.pairwise(times)]
    return 1e6 * statistics.median(pieces[_SKIPPED:]) / _MARK_EVERY
