"""Through `Trainer.fit`: a run that was stopped anywhere and resumed equals one that was not.

`Part` holds all that training does: samples, augmentation, losses, learning rates, validation
metrics, and a hash of the last weights, optimizer and random states. Equal means bit for bit.
"""

from __future__ import annotations

import itertools
import tempfile
from functools import reduce
from operator import add
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.exact import (
    STREAMS,
    Case,
    Part,
    train,
    train_in_new_process,
    train_in_parts,
)
from tests.support.faults import at_least
from tests.support.orders import KINDS
from tests.support.workers import run_workers

TOTAL = 13


@settings(max_examples=at_least(14, 40), deadline=None)
@given(
    case=st.builds(
        Case,
        kind=st.sampled_from([*KINDS, *STREAMS]),
        length=st.integers(1, 20),
        batch_size=st.integers(1, 6),
        aggregation=st.integers(1, 4),
        validate_every=st.sampled_from([3, 5, 100]),
    ),
    cuts=st.lists(st.integers(1, TOTAL - 1), min_size=1, max_size=3),
)
@example(case=Case(length=12, batch_size=3), cuts=[4])  # an epoch's end, after a validation
@example(case=Case(length=12, batch_size=3, aggregation=3), cuts=[4, 5, 8])  # open windows
def test_cut_and_resumed_equals_uncut(case: Case, cuts: list[int]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        uncut = train(case, Path(directory, "uncut"), TOTAL)
        assert len(uncut.losses) == TOTAL
        assert train_in_parts(case, Path(directory, "cut"), TOTAL, cuts) == uncut


# In new processes.


def in_new_processes(directory: Path, *parts: tuple[int, Case, int | None]) -> list[list[Part]]:
    """Train in parts, each with its ranks, case and stop; return what each part's ranks saw."""
    directory.mkdir()
    storage = directory / "storage"
    return [
        run_workers(size, train_in_new_process, directory, case, storage, TOTAL, stop_after)
        for size, case, stop_after in parts
    ]


def joined(parts: list[list[Part]]) -> list[Part]:
    """Return what each rank saw in all parts."""
    return [reduce(add, rank) for rank in zip(*parts, strict=True)]


@pytest.mark.multiprocess
@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        Case("shuffle", num_workers=2, persistent_workers=True, aggregation=2),
        Case("numpy", num_workers=1, prefetch_factor=4),
        Case("stream", num_workers=2, persistent_workers=True),
        Case("stateful stream", num_workers=4),
    ],
    ids=lambda case: case.kind,
)
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
def test_new_processes_continue_exactly_three_times(case: Case, tmp_path: Path) -> None:
    uncut = train(case, tmp_path / "uncut", TOTAL)
    # The epoch's end and a validation come after batch 4.
    parts = [(1, case, stop_after) for stop_after in (1, 4, 5, None)]
    assert joined(in_new_processes(tmp_path / "cut", *parts)) == [uncut]


@pytest.mark.multiprocess
@pytest.mark.slow
def test_the_number_of_workers_may_change(tmp_path: Path) -> None:
    one, three = Case(num_workers=1), Case(num_workers=3, persistent_workers=True)
    uncut = train(one, tmp_path / "uncut", TOTAL)
    parts = in_new_processes(tmp_path / "cut", (1, one, 5), (1, three, None))
    assert joined(parts) == [uncut]


# With ranks.


@pytest.mark.multiprocess
@pytest.mark.slow
def test_two_ranks_continue_exactly_in_the_middle_of_an_aggregation_window(tmp_path: Path) -> None:
    case = Case(length=13, aggregation=2)  # last batches of one record
    uncut = joined(in_new_processes(tmp_path / "uncut", (2, case, None)))
    assert joined(in_new_processes(tmp_path / "cut", (2, case, 5), (2, case, None))) == uncut
    assert uncut[0].validations == uncut[1].validations


@pytest.mark.multiprocess
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["shuffle", "numpy", "stream"])
def test_records_continue_with_another_number_of_ranks(kind: str, tmp_path: Path) -> None:
    alone, shared = Case(kind, length=20, batch_size=6), Case(kind, length=20, batch_size=3)
    uncut = train(alone, tmp_path / "uncut", TOTAL)
    parts = in_new_processes(tmp_path / "cut", (1, alone, 2), (2, shared, 7), (1, alone, None))
    seen = [
        record
        for part in parts
        for batches in zip(*(rank.samples for rank in part), strict=True)
        for record in itertools.chain(*batches)
    ]
    assert [len(part[0].samples) for part in parts] == [2, 5, 6]
    if kind == "shuffle":  # a new rank draws numbers of its own
        assert parts[1][0].noise[0] != parts[1][1].noise[0]
    if kind == "stream":  # its order depends on the batches; its records do not
        epochs = [sorted(seen[begin : begin + 20]) for begin in range(0, len(seen) - 19, 20)]
        assert epochs == [list(range(20))] * 3
    else:
        expected = list(itertools.chain(*uncut.samples))
        assert seen[: len(expected)] == expected[: len(seen)]
