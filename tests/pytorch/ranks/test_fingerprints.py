"""Fingerprints are equal for equal states, and tell others apart."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from determined.pytorch._ranks.fingerprints import checksums, fingerprint

DTYPES = [torch.float32, torch.bfloat16, torch.float64, torch.int8, torch.bool, torch.complex64]


@given(
    st.sampled_from(DTYPES),
    st.integers(1, 40),
    st.integers(0, 5),
    st.integers(1, 3),
    st.data(),
)
def test_a_bit_that_differs_is_seen(
    dtype: torch.dtype, length: int, offset: int, stride: int, data: st.DataObject
) -> None:
    whole = torch.zeros(offset + stride * length, dtype=dtype)
    one, other = whole[offset::stride], whole.clone()[offset::stride]
    assert checksums([one, other])[0] == checksums([other])[0]
    other[data.draw(st.integers(0, length - 1))] = 1
    assert len(set(checksums([one, other]))) == 2


STATES: list[Any] = [
    {"a": 1},
    {"a": 2},
    {"a": 1.0},
    {"a": [1]},
    {"a": (1,)},
    {"a": {1}},
    {"a": torch.zeros(2)},
    {"a": torch.zeros(1, 2)},
    {"a": torch.zeros(2, dtype=torch.int32)},
    {"a": torch.zeros(2).numpy()},
    [{"a": 1}],
    {"b": 1},
    {},
]


def test_states_are_told_apart() -> None:
    assert len({fingerprint(state) for state in STATES}) == len(STATES)


@pytest.mark.parametrize("state", STATES, ids=str)
def test_copies_have_the_same(state: Any) -> None:
    assert fingerprint(copy.deepcopy(state)) == fingerprint(state)


def test_what_cannot_be_pickled_is_no_error() -> None:
    assert fingerprint({"a": lambda: 1}) == fingerprint({"a": lambda: 2})
