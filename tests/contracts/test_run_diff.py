"""Where runs part by records alone: few checkpoints are looked at, settings are set aside."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined._contracts import run_diff
from determined._contracts.run_diff import Point, by_hashes, on_paper
from determined._contracts.tensor_hashes import TensorHashes


def points(values: list[int], files: set[int] | None = None, setting: int = 0) -> list[Point]:
    """Checkpoints at batches 10, 20, ... with one tensor and one state without tensors."""
    return [
        Point(
            10 * (i + 1),
            f"c{i}",
            files is None or 10 * (i + 1) in files,
            TensorHashes({"models/0/w": f"{value:016x}", "schedulers/0": f"{setting:016x}"}),
        )
        for i, value in enumerate(values)
    ]


@given(st.integers(1, 300), st.integers(0, 300))
def test_the_first_difference_is_found_by_halving(length: int, same: int) -> None:
    same = min(same, length)
    first = points(list(range(length)))
    second = points([i if i < same else 1000 + i for i in range(length)])
    found = by_hashes(first, second)
    assert found.equal == (10 * same if same else None)
    assert found.different == (10 * (same + 1) if same < length else None)
    assert found.start == 10 * same
    assert found.compared <= math.log2(length) + 3


def test_both_start_at_the_last_equal_checkpoint_that_has_files_in_both() -> None:
    first = points([1, 2, 3, 4, 5], files={10, 20, 40})
    second = points([1, 2, 3, 9, 9], files={10, 30, 50})
    found = by_hashes(first, second)
    assert (found.equal, found.different, found.start) == (30, 40, 10)


def test_settings_that_differ_all_along_do_not_hide_where_tensors_part() -> None:
    found = by_hashes(points([1, 2, 3]), points([1, 2, 9], setting=1))
    assert (found.equal, found.different) == (20, 30)
    assert (found.settings, found.paths) == (("schedulers/0",), ("models/0/w",))


def test_without_common_checkpoints_both_start_at_the_beginning() -> None:
    found = by_hashes(points([1]), [Point(7, "c", True)])
    assert (found.compared, found.start) == (0, 0)
    assert "no two checkpoints" in str(found)


def test_paper_lists_what_differs_section_by_section() -> None:
    one: dict[str, dict[str, object]] = {
        "packages": {"a": "1", "b": "2"},
        "configuration": {"lr": 0.1},
    }
    two: dict[str, dict[str, object]] = {"packages": {"a": "1"}, "configuration": {"lr": 0.2}}
    assert [str(found) for found in on_paper(one, two)] == [
        "configuration: lr 0.1 and 0.2",
        "packages: b 2 and (none)",
    ]


@pytest.mark.parametrize("through", [5, 900])
def test_equal_runs_end_with_one_line(through: int) -> None:
    found = run_diff.RunDiff([], by_hashes(points([1]), points([1])), through)
    assert str(found).splitlines()[-1] == f"identical through batch {through}"
