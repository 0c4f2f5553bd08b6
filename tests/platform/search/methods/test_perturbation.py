"""How hyperparameters of a fork differ from its parent's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined.platform.search.methods.perturbation import Perturbation, perturbed
from determined.platform.search.sampling.randomness import Stream
from determined.platform.search.settings import Settings
from determined.platform.search.space import Space

SPACE: dict[str, Any] = {
    "optimizer": {
        "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
        "momentum": {"type": "double", "minval": 0.0, "maxval": 0.9},
    },
    "layers": {"type": "int", "minval": 1, "maxval": 64},
    "kind": {"type": "categorical", "vals": ["a", "b", "c"]},
    "size": 3,
}
LEAVES = {leaf.name: leaf for leaf in Space(SPACE).searched}


@pytest.mark.parametrize(
    ("name", "value", "factor", "expected"),
    [
        ("optimizer.lr", 0.01, 0.8, 0.008),
        ("optimizer.lr", 0.1, 1.25, 0.08),  # at the end of its range it moves the other way
        ("optimizer.lr", 0.09, 1.25, 0.1),
        ("optimizer.momentum", 0.5, 1.2, 0.6),
        ("optimizer.momentum", 0.0, 1.2, 0.0),
        ("layers", 10, 0.8, 8),
        ("layers", 2, 1.25, 3),
        ("layers", 1, 0.8, 2),
        ("layers", 64, 1.25, 51),
        ("kind", "b", 1.25, "c"),
        ("kind", "b", 0.8, "a"),
        ("kind", "c", 1.25, "b"),
        ("kind", "c", 1, "c"),
    ],
)
def test_a_value_moves_within_its_range(
    name: str, value: Any, factor: float, expected: Any
) -> None:
    assert perturbed(LEAVES[name], value, factor) == pytest.approx(expected)


def test_huge_integers_stay_exact() -> None:
    (leaf,) = Space({"n": {"type": "int", "minval": 1, "maxval": 10**400}}).searched
    assert perturbed(leaf, 4 * 10**399, 0.5) == 2 * 10**399


@given(seed=st.integers(0, 2**32 - 1), resample=st.sampled_from([0.0, 0.3, 1.0]))
def test_changes_stay_in_range_and_leave_the_parent_alone(seed: int, resample: float) -> None:
    space, stream = Space(SPACE), Stream(seed)
    settings = Settings("pbt", "loss", resample=resample, inherit=("layers",))
    hparams = space.values(space.draw(stream))
    before = repr(hparams)
    values, changed = Perturbation(settings, space).of(hparams, stream)
    assert repr(hparams) == before
    assert changed
    assert "layers" not in changed
    assert values["layers"] == hparams["layers"]
    assert values["size"] == 3
    for name, (old, new) in changed.items():
        LEAVES[name].number(old)
        LEAVES[name].number(new)
        assert old != new
