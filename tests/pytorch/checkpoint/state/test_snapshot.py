"""A snapshot is a copy that later training does not touch, in memory that is used again."""

from __future__ import annotations

import collections
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from determined.pytorch._checkpoint.state.snapshot import Snapshot
from tests.support.resumable import digest

tensors = st.builds(
    lambda shape, seed: torch.randn(shape, generator=torch.Generator().manual_seed(seed)),
    st.lists(st.integers(0, 3), max_size=3),
    st.integers(0, 1000),
)
states = st.recursive(
    st.one_of(tensors, st.integers(), st.floats(allow_nan=False), st.text(), st.none()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.one_of(st.text(), st.integers()), inner, max_size=3),
    ),
    max_leaves=12,
)


def spoil(state: Any) -> None:
    """Change every tensor of a state in place, as the next step would."""
    if isinstance(state, torch.Tensor):
        state.detach().fill_(-1)
    elif isinstance(state, dict):
        for entry in state.values():
            spoil(entry)
    elif isinstance(state, (list, tuple)):
        for entry in state:
            spoil(entry)


@settings(deadline=None)
@given(states, states)
def test_a_copy_is_equal_and_stays_so(first: Any, second: Any) -> None:
    snapshot = Snapshot()
    for state in (first, second, first):
        before = digest(state)
        copied = snapshot.copy(state)
        assert digest(copied) == before
        spoil(state)
        assert digest(copied) == before


def buffers_of(value: Any) -> list[int]:
    if isinstance(value, torch.Tensor):
        return [value.data_ptr()]
    entries = value.values() if isinstance(value, dict) else value
    return [pointer for entry in entries for pointer in buffers_of(entry)]


def test_the_next_copy_uses_the_same_memory() -> None:
    model = nn.Linear(40, 30)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(40)).sum().backward()
    optimizer.step()
    snapshot = Snapshot()
    states = [model.state_dict(), optimizer.state_dict()["state"]]
    first = buffers_of(snapshot.copy(states))
    optimizer.step()
    assert buffers_of(snapshot.copy(states)) == first
    assert not set(first) & set(buffers_of(states))


def test_memory_is_one_copy_of_the_state_and_no_more() -> None:
    snapshot = Snapshot()
    weights, gradients = torch.ones(1000), torch.ones(500)
    snapshot.copy({"weights": weights, "gradients": gradients, "tied": weights})
    assert sum(buffer.nbytes for buffer in snapshot._buffers.values()) == 6000
    snapshot.copy({"weights": weights})
    assert sum(buffer.nbytes for buffer in snapshot._buffers.values()) == 4000


def test_tied_weights_stay_tied() -> None:
    weight = torch.ones(3)
    copied = Snapshot().copy({"encoder": weight, "decoder": weight, "other": weight.clone()})
    assert copied["encoder"] is copied["decoder"]
    assert copied["other"] is not copied["encoder"]


def test_a_tensor_that_changes_shape_or_type_gets_a_buffer_of_its_own() -> None:
    snapshot = Snapshot()
    for tensor in (torch.ones(3), torch.ones(2), torch.ones(2, dtype=torch.int64)):
        copied = snapshot.copy({"x": tensor})["x"]
        assert copied.dtype == tensor.dtype
        assert torch.equal(copied, tensor)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.eye(3).to_sparse(),
        torch.view_as_complex(torch.ones(2, 2)).conj(),
        torch.ones(2, 3).t(),
        torch.ones(1).expand(4),
        torch.tensor(1.5, dtype=torch.bfloat16),
        torch.ones(3, requires_grad=True) * 2,
        nn.Parameter(torch.ones(2)),
    ],
    ids=["sparse", "conjugate", "transposed", "expanded", "bfloat16", "non-leaf", "parameter"],
)
def test_every_kind_of_tensor_is_copied(tensor: torch.Tensor) -> None:
    snapshot = Snapshot()
    for _ in range(2):
        copied = snapshot.copy([tensor])[0]
        assert copied.requires_grad == tensor.requires_grad
        assert type(copied) is type(tensor)
        assert torch.equal(copied.detach().to_dense(), tensor.detach().to_dense())
        assert copied.shape == tensor.shape


def test_a_tensor_and_its_conjugate_are_two() -> None:
    number = torch.tensor([1 + 2j])
    copied = Snapshot().copy([number, number.conj()])
    assert [entry.item() for entry in copied] == [1 + 2j, 1 - 2j]


def test_other_objects_are_copied_whole() -> None:
    Point = collections.namedtuple("Point", "x y")
    array = np.ones(2)
    state: dict[str, Any] = {"array": array, "point": Point(torch.ones(1), [1]), "set": {1}}
    copied = Snapshot().copy(state)
    array[:] = 5
    state["point"].x.fill_(5)
    state["point"].y.append(2)
    assert copied["array"].tolist() == [1, 1]
    assert copied["point"] == Point(torch.ones(1), [1])


def test_a_state_dict_keeps_its_type_and_versions() -> None:
    state: Any = nn.BatchNorm1d(2).state_dict()
    copied: Any = Snapshot().copy(state)
    assert type(copied) is OrderedDict
    assert vars(copied) == vars(state) != {}
    assert list(copied) == list(state)
