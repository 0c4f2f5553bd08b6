"""The generator is worth as much as it finds: each defect, put back, breaks the law."""

from __future__ import annotations

import time

import hypothesis
import pytest
import torch

from tests.exactness.defects import DEFECTS
from tests.exactness.generator import QUIET, Case, cases
from tests.exactness.running import problems
from tests.support.faults import draw_seed, factor
from tests.support.victims import preload
from tests.support.workers import run_workers

pytestmark = pytest.mark.multiprocess

# With the part that shows it, and among all trials (the long form).
CASES, CASES_AMONG_ALL = 40, 600
SECONDS_PER_CASE = 10


class _FoundError(Exception):
    pass


def _cases_until_found(name: str, count: int, seed: int, among_all: bool) -> int | None:
    """Return how many cases it took in this process, in which the defect stays."""
    torch.set_num_threads(1)
    preload()
    DEFECTS[name].plant()
    done, is_found = 0, False

    def look(case: Case) -> None:
        nonlocal done, is_found
        done += not is_found  # hypothesis tries what failed once more
        try:
            is_found = is_found or bool(problems(*case))
        except Exception:  # it cannot even go on
            is_found = True
        if is_found:
            raise _FoundError

    drawn = cases(1) if among_all else cases(1, **DEFECTS[name].given)
    phases = [hypothesis.Phase.generate]
    wanted = hypothesis.settings(QUIET, max_examples=count, phases=phases)
    try:
        hypothesis.seed(seed)(wanted(hypothesis.given(drawn)(look)))()
    except _FoundError:
        return done
    return None


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_that_is_put_back_is_found(name: str) -> None:
    among_all = factor() > 1
    count = CASES_AMONG_ALL if among_all else CASES
    seed = draw_seed(short=1)
    began = time.monotonic()
    (found,) = run_workers(
        1,
        _cases_until_found,
        name,
        count,
        seed,
        among_all,
        process_group=False,
        deadline_seconds=SECONDS_PER_CASE * count,
    )
    seconds = time.monotonic() - began
    print(f"{name}: found after {found} cases, {seconds:.0f} s, seed {seed}")  # noqa: T201
    assert found is not None
