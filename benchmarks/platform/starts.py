"""How long the start of a trial takes under a running supervisor, warm and cold."""

from __future__ import annotations

import sys
import time

from benchmarks.platform.commands import seconds_of
from benchmarks.platform.figure import Figure, difference, in_turns, median
from benchmarks.platform.site import Site, open_site

_TORCH = [sys.executable, "-c", "import torch"]


def measure(is_quick: bool) -> list[Figure]:
    rounds = 3 if is_quick else 9
    with open_site() as site:
        first_batch(site, warm=True)  # loads the helper
        samples = in_turns(
            rounds,
            warm=lambda: first_batch(site, warm=True),
            cold=lambda: first_batch(site, warm=False),
            torch=lambda: seconds_of(_TORCH),
        )
    return [
        Figure("create to first batch, warm", median(samples, "warm"), goal=1.0, samples=samples),
        Figure(
            'create to first batch, cold, over `python -c "import torch"`',
            difference(samples, "cold", "torch"),
            goal=1.0,
            samples=samples,
        ),
    ]


def first_batch(site: Site, *, warm: bool) -> float:
    """Return the seconds from `create` to the first batch of a trial."""
    marks = site.folder / "first-batch"
    marks.unlink(missing_ok=True)
    began = time.time()
    site.finish(
        site.create("net", warm=warm, variables={"MARKS": str(marks)}, hyperparameters={"lr": 0.1})
    )
    return float(marks.read_text().split()[2]) - began
