"""Drawing hyperparameters from ranges."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined._legacy.hparams import sample_hparams

_RANGES: dict[str, Any] = {
    "const": {"type": "const", "val": [1, 2]},
    "int": {"type": "int", "minval": 1, "maxval": 3},
    "double": {"type": "double", "minval": -1.0, "maxval": 1.0},
    "log": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
    "categorical": {"type": "categorical", "vals": ["a", "b"]},
    "plain": 5,
    "nested": {"deeper": {"int": {"type": "int", "minval": 7, "maxval": 7}}},
}


@given(st.integers())
def test_values_lie_in_their_ranges(seed: int) -> None:
    values = sample_hparams(_RANGES, seed)
    assert values["const"] == [1, 2]
    assert values["int"] in (1, 2, 3)
    assert -1 <= values["double"] <= 1
    assert 1e-4 <= values["log"] <= 0.1 * (1 + 1e-12)
    assert values["categorical"] in ("a", "b")
    assert values["plain"] == 5
    assert values["nested"] == {"deeper": {"int": 7}}
    assert list(values) == list(_RANGES)


def test_both_ends_of_an_int_are_drawn() -> None:
    drawn = {sample_hparams(_RANGES, seed)["int"] for seed in range(100)}
    assert drawn == {1, 2, 3}


@given(st.permutations(list(_RANGES)), st.integers())
def test_the_order_in_the_file_does_not_matter(names: list[str], seed: int) -> None:
    shuffled = {name: _RANGES[name] for name in names}
    assert sample_hparams(shuffled, seed) == sample_hparams(_RANGES, seed)


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "gauss"},
        {"type": "int", "minval": 1},
        {"type": "int", "minval": 3, "maxval": 1},
        {"type": "double", "minval": "a", "maxval": 1},
        {"type": "categorical", "vals": []},
        {"type": "const"},
    ],
)
def test_impossible_ranges_are_named(entry: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"hyperparameters\.group\.x"):
        sample_hparams({"group": {"x": entry}})


def test_a_hyperparameter_whose_condition_is_not_met_is_left_out() -> None:
    space: dict[str, Any] = {
        "net": {"kind": {"type": "categorical", "vals": ["cnn", "mlp"]}},
        "kernel": {"type": "int", "minval": 1, "maxval": 9, "step": 2, "when": {"net.kind": "cnn"}},
        "deep": {"type": "const", "val": 1, "when": {"kernel": [1, 3, 5, 7, 9]}},
        "width": {"type": "log_int", "minval": 4, "maxval": 64, "when": {"net": {"kind": "mlp"}}},
    }
    seen = set()
    for seed in range(30):
        values = sample_hparams(space, seed)
        is_cnn = values["net"]["kind"] == "cnn"
        assert ("kernel" in values, "deep" in values, "width" in values) == (
            is_cnn,
            is_cnn,
            not is_cnn,
        )
        assert values.get("kernel", 1) % 2 == 1
        assert 4 <= values.get("width", 4) <= 64
        seen.add(is_cnn)
    assert seen == {True, False}
