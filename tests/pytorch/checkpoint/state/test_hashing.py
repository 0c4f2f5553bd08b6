"""Hashes of states: equal for equal bits, different for any other bit, of all kinds of values."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from determined._contracts.checkpoint_layout import CALLBACKS, MODELS, OPTIMIZERS, SCHEDULERS
from determined.pytorch._checkpoint.state.hashing import hash_states, hash_tensors, sha256_of

_DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.uint8]


def _hash(tensor: torch.Tensor) -> str:
    return hash_tensors({"": tensor})[""]


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("size", [0, 1, 3, 200_003])
def test_equal_tensors_have_equal_hashes_wherever_they_lie(dtype: torch.dtype, size: int) -> None:
    tensor = (torch.arange(size) % 7).to(dtype)
    padded = torch.cat([torch.ones(1, dtype=dtype), tensor])[1:]
    spread = torch.stack([tensor, tensor], 1)[:, 0]
    assert _hash(tensor) == _hash(padded) == _hash(spread) == _hash(tensor.clone())
    assert sha256_of(tensor) == sha256_of(padded) != sha256_of(spread) or size < 2


@given(at=st.integers(0, 8 * 400_011 - 1), other=st.integers(0, 8 * 400_011 - 1))
def test_any_two_bits_make_a_difference(at: int, other: int) -> None:
    data = _DATA.clone()
    before = _hash(data)
    for bit in {at, other}:
        data[bit // 8] ^= 1 << bit % 8
    assert _hash(data) != before


_DATA = torch.from_numpy(np.frombuffer(random.Random(0).randbytes(400_011), np.uint8).copy())


def test_order_type_and_shape_make_a_difference() -> None:
    words = torch.arange(100_000)
    swapped = words.clone()
    swapped[[3, 70_000]] = words[[70_000, 3]]
    forms = [words, swapped, words.flip(0), words.view(1000, 100), words.view(torch.float64)]
    assert len(set(map(_hash, forms))) == len(forms)
    permutation = torch.eye(1024)  # rows and columns have the same sums in any order
    orders = [torch.arange(1024), torch.arange(1024).flip(0), torch.arange(1024).roll(2)]
    assert len({_hash(permutation[order]) for order in orders}) == len(orders)
    assert _hash(torch.tensor([0.0])) != _hash(torch.tensor([-0.0]))


def test_tensors_have_their_own_paths_and_all_else_one_for_each_state() -> None:
    def state(rate: float = 0.1, step: int = 3) -> dict[str, Any]:
        return {
            MODELS: [{"a.weight": torch.ones(2)}, {"b": torch.ones(3)}],
            OPTIMIZERS: [
                {"state": {0: {"exp_avg": torch.ones(2)}}, "param_groups": [{"lr": rate}]}
            ],
            SCHEDULERS: [{"step": step, "seen": {1, 2}}],
            CALLBACKS: {"mine": {"best": torch.ones(1), "name": "x"}, "empty": {}},
        }

    rank = {"rng_state": {"cpu": torch.ones(4)}, "data": {"position": 3, "of": np.arange(3)}}
    before = hash_states(state(), [rank])
    assert set(before) == {
        *("models/0/a.weight", "models/1/b", "optimizers/0/state/0/exp_avg", "optimizers/0"),
        *("schedulers/0", "callbacks/mine/best", "callbacks/mine", "callbacks/empty"),
        *("ranks/0/random/cpu", "ranks/0/data"),
    }
    assert before == hash_states(state(), [rank])
    changed = hash_states(state(rate=0.2), [rank])
    assert {path for path in before if before[path] != changed[path]} == {"optimizers/0"}
    changed = hash_states(state(step=4), [{**rank, "data": {"position": 3, "of": np.arange(4)}}])
    different = {path for path in before if before[path] != changed[path]}
    assert different == {"schedulers/0", "ranks/0/data"}


def test_a_state_that_leads_back_to_itself_has_a_hash() -> None:
    loop: dict[str, Any] = {"a": 1}
    loop["self"] = loop
    assert hash_states({CALLBACKS: {"loop": loop}}, []).keys() == {"callbacks/loop"}
