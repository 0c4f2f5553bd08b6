"""Draws trials and faults. What comes first in a list is what failing examples shrink to."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.exactness.parts.data import DATA
from tests.exactness.parts.extras import EXTRAS
from tests.exactness.parts.optimizers import OPTIMIZERS
from tests.exactness.parts.schedulers import MODES, SCHEDULERS
from tests.exactness.recipe import Recipe
from tests.exactness.running import SCALE, Fault

QUIET = settings(
    deadline=None,
    database=None,
    print_blob=False,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
)

Case = tuple[Recipe, tuple[Fault, ...]]


def _mostly(usual: Any, others: list[Any]) -> st.SearchStrategy[Any]:
    """Draw the usual choice two times of three."""
    return st.sampled_from([usual] * (2 * len(others)) + others)


# Batch norm cannot train on one record: no last batch has only one.
_SIZES = [(6, 3), (8, 2), (8, 3), (12, 2), (14, 3)]


@st.composite
def recipes(draw: st.DrawFn, ranks: int = 1) -> Recipe:
    """Draw a trial for so many ranks."""
    records, batch_size = draw(st.sampled_from(_SIZES))
    dtype = draw(_mostly("float32", ["bfloat16", "float64"]))
    plain = dtype == "float32"
    # DDP refuses parameters that get a gradient only now and then.
    extras = [name for name in EXTRAS if ranks == 1 or "later" not in name]
    return Recipe(
        optimizer=draw(st.sampled_from(list(OPTIMIZERS))),
        scheduler=draw(st.sampled_from([None, *SCHEDULERS])),
        steps_every=draw(st.sampled_from(list(MODES))),
        dtype=dtype,
        precision=draw(_mostly(None, ["autocast", "scaler"])) if plain else None,
        accumulation=draw(_mostly(1, [2, 3])),
        clips=draw(st.booleans()),
        extras=tuple(draw(st.lists(st.sampled_from(extras), max_size=3, unique=True))),
        data=draw(st.sampled_from(list(DATA))),
        workers=draw(st.sampled_from([0] * 18 + [1, 2])) if ranks == 1 else 0,
        validation_data=draw(_mostly("in order", ["with a generator of its own"])),
        records=records,
        batch_size=batch_size,
        batches=draw(st.integers(5, 14)),
        report_every=draw(st.sampled_from([100, 1, 3, 4])),
        validate_every=draw(st.sampled_from([None, 2, 3, 5])),
        save_every=draw(st.sampled_from([None, 1, 2, 3, 5])),
        in_background=draw(st.booleans()),
        ranks=ranks,
    )


def faults(ranks: int = 1) -> st.SearchStrategy[Fault]:
    """Draw a fault on any of the ranks."""
    return st.builds(
        Fault,
        kind=st.sampled_from(
            ["stop", "signal", "error", "stop", "error", "kill", "kill in a save"]
        ),
        at=st.integers(0, SCALE),
        rank=st.integers(0, ranks - 1),
        threads=st.sampled_from([None] * 15 + [2]) if ranks == 1 else st.none(),
    )


def cases(ranks: int = 1, **given: Any) -> st.SearchStrategy[Case]:
    """Draw a trial and what happens to it; `given` are choices of the recipe that are made."""
    several = st.lists(faults(ranks), min_size=1, max_size=3).map(tuple)
    trials = recipes(ranks).map(lambda recipe: dataclasses.replace(recipe, **given))
    return st.tuples(trials, several)
