from __future__ import annotations

import contextlib
import io
import os
import random
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from determined.pytorch._data.seed import (
    PrivateRNG,
    apart_from_training,
    forked_rng,
    mix,
    rng_state,
    seed_everything,
    set_rng_state,
)


def draws() -> tuple[Any, ...]:
    """Draw from every global generator; `randn` and `gauss` keep a spare number between calls."""
    return (
        random.random(),
        random.gauss(0, 1),
        float(np.random.randn()),
        int(np.random.randint(1 << 30)),
        torch.randn(3).tolist(),
    )


@given(st.lists(st.integers(), max_size=4))
def test_mix_gives_63_bits(numbers: list[int]) -> None:
    assert 0 <= mix(*numbers) < 2**63


def test_mix_tells_neighbours_and_positions_apart() -> None:
    assert len({mix(a, b) for a in range(40) for b in range(40)}) == 1600
    assert mix(1, 23) != mix(12, 3)


def test_mix_does_not_depend_on_the_hash_seed() -> None:
    code = "from determined.pytorch._data.seed import mix; print(mix(7, 1, 2))"
    environment = {**os.environ, "PYTHONHASHSEED": "123"}
    out = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, check=True, timeout=60
    )
    assert int(out.stdout) == mix(7, 1, 2)


def test_seeding_makes_all_generators_repeat() -> None:
    seed_everything(2**40 + 5)
    first = draws()
    seed_everything(2**40 + 5)
    assert draws() == first


def test_saved_state_loads_with_weights_only_and_restores_all_draws() -> None:
    draws()
    buffer = io.BytesIO()
    torch.save(rng_state(), buffer)
    expected = [draws(), draws()]
    seed_everything(99)
    buffer.seek(0)
    set_rng_state(torch.load(buffer, weights_only=True))
    assert [draws(), draws()] == expected


def test_state_in_the_forms_of_numpy_and_of_json_is_read() -> None:
    version, words, gauss = random.getstate()
    state = {
        "cpu_rng_state": torch.get_rng_state(),
        "np_rng_state": np.random.get_state(),
        "random_rng_state": [version, list(words), gauss],
    }
    expected = draws()
    seed_everything(99)
    set_rng_state(state)
    assert draws() == expected


def test_missing_and_foreign_parts_of_a_state_are_named(caplog: pytest.LogCaptureFixture) -> None:
    set_rng_state({"cpu_rng_state": torch.get_rng_state(), "gpu_rng_state": torch.zeros(16)})
    assert "np_rng_state, random_rng_state" in caplog.text
    assert "accelerator" in caplog.text


def test_forked_generators_leave_the_outer_ones_alone() -> None:
    seed_everything(1)
    expected = [draws(), draws()]
    seed_everything(1)
    seen = [draws()]
    with forked_rng(5):
        inside = draws()
    seen.append(draws())
    assert seen == expected
    with forked_rng(5):
        assert draws() == inside


def test_forked_generators_are_restored_after_an_error() -> None:
    before = torch.get_rng_state()
    with pytest.raises(RuntimeError), forked_rng(5):
        torch.rand(1) @ torch.rand(2)
    assert torch.equal(torch.get_rng_state(), before)


def test_private_generators_continue_where_they_stopped() -> None:
    whole = PrivateRNG(3)
    with whole:
        expected = [draws(), draws()]
    parts = PrivateRNG(3)
    seen = []
    for _ in range(2):
        with parts:
            seen.append(draws())
        draws()
    assert seen == expected


def test_draws_apart_from_training_repeat_and_leave_no_trace() -> None:
    seed_everything(1)
    expected = draws(), draws()
    seed_everything(1)
    first = draws()
    apart = []
    for seed in (5, 6, 5):
        with contextlib.suppress(KeyError), apart_from_training(seed):
            apart.append(draws())
            raise KeyError  # an error changes nothing either
    assert (first, draws()) == expected
    assert apart[0] == apart[2] != apart[1]
