"""The law of exactness on trials that nobody wrote: equal to the unbroken run, or said."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis
import pytest
import torch

from tests.exactness.generator import QUIET, Case, cases
from tests.exactness.running import problems
from tests.support.faults import at_least, draw_seed
from tests.support.victims import preload
from tests.support.workers import run_workers

pytestmark = pytest.mark.multiprocess

# Cases of the short form, and of the long form for each unit of its factor.
COUNTS = {1: (24, 60), 2: (2, 10), 3: (2, 6), 4: (1, 4)}
SECONDS_PER_CASE = 20


def _law(case: Case) -> None:
    found = problems(*case)
    if found:
        again = f'python -m tests.exactness --again "{case!r}"'
        raise AssertionError("\n".join([*found, f"To see it again: {again}"]))


def _search(ranks: int, count: int, seed: int) -> None:
    """In a process that has one thread, so that it can fork."""
    torch.set_num_threads(1)
    preload()
    test: Callable[[], None] = hypothesis.given(cases(ranks))(_law)
    hypothesis.seed(seed)(hypothesis.settings(QUIET, max_examples=count)(test))()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("ranks", list(COUNTS))
def test_what_was_interrupted_ends_like_what_was_not_or_says_so(ranks: int) -> None:
    count = at_least(*COUNTS[ranks])
    seed = draw_seed(short=ranks)
    print(f"{count} cases on {ranks} rank(s)")  # noqa: T201  # shown by the long form
    run_workers(
        1,
        _search,
        ranks,
        count,
        seed,
        process_group=False,
        deadline_seconds=SECONDS_PER_CASE * count,
    )
