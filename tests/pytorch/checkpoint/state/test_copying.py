"""A copy of a state is equal, of the same types, shares what it shared, and nothing else."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from determined.pytorch._checkpoint.state.copying import copy_state
from determined.pytorch._checkpoint.state.snapshot import Snapshot
from tests.support.quantized import Quantized
from tests.support.states import assert_same, memory, states

COPIES: list[Callable[[Any], Any]] = [copy_state, Snapshot().copy]


@pytest.mark.parametrize("copied", COPIES, ids=["copy", "snapshot"])
@settings(deadline=None, max_examples=200)
@given(state=states)
def test_a_copy_is_the_same_and_apart(copied: Callable[[Any], Any], state: Any) -> None:
    new = copied(state)
    assert_same(state, new, {})
    assert not memory(state) & memory(new)


@pytest.mark.parametrize("copied", COPIES, ids=["copy", "snapshot"])
@settings(deadline=None)
@given(ranges=st.lists(st.tuples(st.integers(0, 15), st.integers(1, 5)), min_size=2, max_size=5))
def test_views_of_one_tensor_stay_views_of_one(
    copied: Callable[[Any], Any], ranges: list[tuple[int, int]]
) -> None:
    flat = torch.arange(20.0)
    views = [flat[start : start + length] for start, length in ranges]
    new = copied(views)
    for view, other in zip(views, new, strict=True):
        assert torch.equal(view, other)
    for view in (views[0], new[0]):
        view += 100  # shows in all that overlap, on either side
    for view, other in zip(views, new, strict=True):
        assert torch.equal(view, other)
    assert not memory(views) & memory(new)


def test_a_snapshot_of_a_part_of_a_large_tensor_is_small() -> None:
    large = torch.arange(1000.0)
    (part,) = Snapshot().copy([large[5:7]])
    assert part.tolist() == [5, 6]
    assert part.untyped_storage().nbytes() == 8


@pytest.mark.parametrize("copied", COPIES, ids=["copy", "snapshot"])
def test_the_whole_and_a_part_share(copied: Callable[[Any], Any]) -> None:
    whole = torch.arange(6.0)
    for state in ({"part": whole[2:4], "whole": whole}, {"whole": whole, "part": whole[2:4]}):
        new = copied(state)
        new["whole"][2] = 50
        assert new["part"].tolist() == [50, 3]
        assert whole[2] == 2


@pytest.mark.parametrize("copied", COPIES, ids=["copy", "snapshot"])
def test_what_holds_itself_holds_itself(copied: Callable[[Any], Any]) -> None:
    listed: list[Any] = [torch.ones(1)]
    listed.append({"back": listed, "tuple": (listed,)})
    new = copied(listed)
    assert new[1]["back"] is new
    assert new[1]["tuple"][0] is new
    around: tuple[Any, ...] = ([],)
    around[0].append(around)
    new = copied(around)
    assert new[0][0] is new
    assert new is not around


@pytest.mark.parametrize("copied", COPIES, ids=["copy", "snapshot"])
def test_a_tensor_made_of_tensors_is_copied_by_its_parts(copied: Callable[[Any], Any]) -> None:
    tensor = Quantized.of(torch.tensor([[1.0, -2.0]]))
    with pytest.raises(NotImplementedError):
        tensor.clone()
    new = copied({"state": tensor})["state"]
    assert type(new) is Quantized
    assert torch.equal(new.dequantize(), tensor.dequantize())
    tensor.codes.zero_()
    assert new.dequantize().tolist() == [[1.0, -2.0]]


@pytest.mark.parametrize("copied", COPIES, ids=["copy", "snapshot"])
def test_a_class_that_says_how_it_is_copied_is_copied_so(copied: Callable[[Any], Any]) -> None:
    class Own:
        def __init__(self) -> None:
            self.tensor = torch.ones(2)
            self.lock = object()

        def __deepcopy__(self, memo: Any) -> Own:
            new = Own()
            new.tensor = copy.deepcopy(self.tensor, memo)
            return new

    shared = Own()
    new = copied([shared, shared, shared.tensor])
    assert new[0] is new[1]
    assert new[0].tensor is not shared.tensor
    assert torch.equal(new[0].tensor, shared.tensor)
