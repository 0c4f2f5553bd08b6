"""The stream equals numpy's, draw for draw."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined.platform.search.sampling.randomness import Stream


@given(
    seed=st.integers(0, 2**32 - 1),
    draws=st.lists(
        st.one_of(
            st.tuples(st.just("int"), st.integers(1, 2**40)),
            st.tuples(st.just("int"), st.sampled_from([1, 2, 3, 2**31, 2**32 - 1, 2**32])),
            st.tuples(st.sampled_from(["uniform", "bytes"]), st.just(0)),
        ),
        max_size=30,
    ),
)
def test_every_draw_is_that_of_numpy(seed: int, draws: list[tuple[str, int]]) -> None:
    ours, numpys = Stream(seed), np.random.RandomState(seed)
    for kind, size in draws * 30:
        if kind == "int":
            assert ours.integer(5, 5 + size) == 5 + numpys.randint(0, size, dtype=np.int64)
        elif kind == "uniform":
            assert ours.uniform(-4, -1.5) == numpys.uniform(-4, -1.5)
        else:
            drawn = numpys.bytes(16).hex()
            kept = ours.request_id().replace("-", "")
            assert kept[:12] + kept[13:16] + kept[17:] == drawn[:12] + drawn[13:16] + drawn[17:]


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_seeds_that_numpy_refuses_are_refused(seed: int) -> None:
    with pytest.raises(ValueError, match="from 0 to"):
        Stream(seed)
