"""State in parts: any number of ranks wrote it, it is whole again, and nothing in it is trusted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from determined.errors import InvalidCheckpointException
from determined.pytorch._checkpoint.files.shards import (
    _assemble,
    _rows,
    join,
    place_optimizer_state,
)


def write(path: Path, tensor: torch.Tensor, size: int, key: str = "w") -> dict[str, Any]:
    """Write a tensor as so many ranks do, and return its description."""
    (path / "shards").mkdir(exist_ok=True)
    for rank in range(size):
        start, stop = _rows(len(tensor), rank, size)
        parts = {key: (start, tensor[start:stop].clone())} if stop > start else {}
        torch.save(parts, path / "shards" / f"rank_{rank}.pth")
    dtype = str(tensor.dtype).removeprefix("torch.")
    return {"determined.shard": key, "shape": list(tensor.shape), "dtype": dtype}


@given(length=st.integers(0, 60), size=st.integers(1, 9))
def test_the_rows_of_all_ranks_make_up_a_tensor(length: int, size: int) -> None:
    rows = [range(*_rows(length, rank, size)) for rank in range(size)]
    assert [row for part in rows for row in part] == list(range(length))
    chunks = torch.arange(length).chunk(size) if length else ()
    assert [len(part) for part in rows if part] == [len(chunk) for chunk in chunks]


@given(
    length=st.integers(1, 40), size=st.integers(1, 6), start=st.integers(0, 40), more=st.integers(0)
)
def test_any_rows_can_be_taken_from_any_parts(
    length: int, size: int, start: int, more: int
) -> None:
    tensor = torch.arange(2 * length).reshape(length, 2)
    start = min(start, length)
    stop = min(start + more, length)
    bounds = [_rows(length, rank, size) for rank in range(size)]
    parts = [(low, tensor[low:high]) for low, high in bounds if high > low]
    found = _assemble(parts, start, stop, [length, 2], torch.int64)
    assert torch.equal(found, tensor[start:stop])


@settings(max_examples=20, deadline=None)
@given(length=st.integers(0, 9), size=st.integers(1, 12))
def test_one_process_reads_what_any_number_of_ranks_wrote(
    tmp_path_factory: pytest.TempPathFactory, length: int, size: int
) -> None:
    path = tmp_path_factory.mktemp("checkpoint")
    tensor = torch.randn(length, 2, 3).bfloat16()
    state = join(path, {"models": [{"w": write(path, tensor, size), "epoch": 3}]})
    assert torch.equal(state["models"][0]["w"], tensor)
    assert state["models"][0]["epoch"] == 3


def test_state_without_parts_needs_no_files(tmp_path: Path) -> None:
    state = {"w": torch.ones(2), "nest": ({"deep": [1, None]}, "text")}
    assert join(tmp_path, state) == state


def test_a_file_with_code_is_refused_and_not_run(tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {tmp_path}/was-run",)

    description = write(tmp_path, torch.ones(4), 2)
    torch.save({"w": (2, Hostile())}, tmp_path / "shards" / "rank_1.pth")
    with pytest.raises(InvalidCheckpointException, match="rank_1.pth was not loaded.*system"):
        join(tmp_path, {"w": description})
    assert not (tmp_path / "was-run").exists()


@pytest.mark.parametrize(
    "part",
    [
        (0, torch.ones(2)),  # rows that another rank has
        (3, torch.ones(1)),  # a gap
        (2, torch.ones(1)),  # too few
        (2, torch.ones(3)),  # too many
        (2, torch.ones(2, dtype=torch.float64)),
        (2, torch.ones(2, 1)),
        (2, torch.ones(1).expand(2)),  # fewer bytes than rows
        ("2", torch.ones(2)),
        (2.0, torch.ones(2)),
        (2, [1.0, 1.0]),
        torch.ones(2),
    ],
    ids=str,
)
def test_parts_that_do_not_fit_are_refused(tmp_path: Path, part: Any) -> None:
    description = write(tmp_path, torch.ones(4), 2)
    torch.save({"w": part}, tmp_path / "shards" / "rank_1.pth")
    with pytest.raises(InvalidCheckpointException, match="do not add up to w|should hold a row"):
        join(tmp_path, {"w": description})


def test_a_lost_file_is_noticed(tmp_path: Path) -> None:
    description = write(tmp_path, torch.ones(4), 2)
    (tmp_path / "shards" / "rank_0.pth").unlink()
    with pytest.raises(InvalidCheckpointException, match="rows fit up to 0. Was a file lost"):
        join(tmp_path, {"w": description})


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [10**15]},
        {"shape": []},
        {"shape": [-4]},
        {"shape": "4"},
        {"shape": [4.0]},
        {"dtype": "load"},
        {"dtype": None},
        {"determined.shard": 3},
    ],
    ids=str,
)
def test_descriptions_that_claim_what_is_not_there_are_refused(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    description = {**write(tmp_path, torch.ones(4), 2), **change}
    with pytest.raises(InvalidCheckpointException, match="do not add up to w|no shape and type"):
        join(tmp_path, {"w": description})


def test_the_state_of_an_optimizer_of_another_make_is_left_alone() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    saved = {"my own": 3}
    assert place_optimizer_state(optimizer, saved) is saved
