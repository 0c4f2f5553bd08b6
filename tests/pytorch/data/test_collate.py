from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import default_collate
from torch.utils.data._utils.collate import default_collate_fn_map

from determined.pytorch._data.collate import collate, quickest

_TENSORS = st.sampled_from([torch.float32, torch.int64, torch.bfloat16]).flatmap(
    lambda dtype: st.integers(0, 3).map(lambda n: torch.arange(n).to(dtype))
)
_VALUES = (
    _TENSORS
    | st.integers(-(2**70), 2**70)
    | st.booleans()
    | st.floats(allow_nan=False)
    | st.text(max_size=3)
    | st.just(np.float32(3))
)


def _result(collate_fn: Callable[[Any], Any], samples: Any) -> Any:
    try:
        return collate_fn(samples)
    except Exception as error:
        return type(error), str(error)


def _same(first: Any, second: Any) -> bool:
    if type(first) is not type(second):
        return False
    if isinstance(first, torch.Tensor):
        return first.dtype == second.dtype and torch.equal(first, second)
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(_same, first, second))
    if isinstance(first, dict):
        return _same(list(first.items()), list(second.items()))
    return bool(first == second)


@given(st.integers(1, 3).flatmap(lambda n: st.lists(st.tuples(*[_VALUES] * n), min_size=1)))
def test_it_gives_what_default_collate_gives(samples: list[Any]) -> None:
    assert _same(_result(collate, samples), _result(default_collate, samples))


@given(st.integers(1, 5), st.integers(0, 3), st.booleans())
def test_so_it_is_for_samples_that_fit(count: int, width: int, is_number: bool) -> None:
    samples = [
        (torch.full((width, 2), float(i)), i if is_number else torch.tensor(i))
        for i in range(count)
    ]
    batch = collate(samples)
    assert type(batch) is list
    assert _same(batch, default_collate(samples))


@pytest.mark.parametrize(
    "samples",
    [
        [(torch.ones(2), 1), (torch.ones(2),)],
        [(torch.ones(2), 1), (torch.ones(3), 1)],
        [(torch.ones(2).to_sparse(),), (torch.ones(2).to_sparse(),)],
        [(2**63,)],
        [()],
        [(torch.nn.Parameter(torch.ones(1)),)],
        [{"a": torch.ones(1)}, {"a": torch.ones(1)}],
        [torch.ones(2), torch.zeros(2)],
    ],
)
def test_what_does_not_fit_is_left_to_default_collate(samples: list[Any]) -> None:
    assert _same(_result(collate, samples), _result(default_collate, samples))


def test_a_function_registered_for_tensors_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def count(batch: Any, *, collate_fn_map: Any = None) -> int:
        return len(batch)

    monkeypatch.setitem(default_collate_fn_map, torch.Tensor, count)
    assert collate([(torch.ones(1),)] * 3) == [3]


def test_a_function_of_the_users_own_stays() -> None:
    assert quickest(len) is len
    assert quickest(default_collate) is collate
