"""Hyperparameters: the reference's stream, nesting, grids."""

from __future__ import annotations

import json
from typing import Any

import pytest

from determined.platform.search.sampling.randomness import Stream
from determined.platform.search.space import Space
from tests.platform.search.scripted import SPACE


def test_samples_are_those_of_the_reference_bit_for_bit() -> None:
    stream, space = Stream(42), Space(SPACE)
    found = [
        (space.values(space.draw(stream)), stream.request_id(), stream.trial_seed())
        for _ in range(3)
    ]
    assert found == [
        ({"lr": 0.0013292918943162155, "n": 5}, "0e95f52e-6af4-43bb-87d4-99c7bcae4199", 415968276),
        (
            {"lr": 0.00029380279387035353, "n": 3},
            "d6f49719-4a91-4e0e-8a55-917557b8bddd",
            1433267572,
        ),
        ({"lr": 0.006358358856676252, "n": 8}, "82a0a0a6-9506-4505-b4fd-700e01034cf8", 953477463),
    ]


def test_a_stream_continues_from_its_json() -> None:
    stream = Stream(7)
    for _ in range(1000):
        stream.uniform(0, 1)
    copy = Stream.from_json(json.loads(json.dumps(stream.to_json())))
    assert [copy.trial_seed() for _ in range(700)] == [stream.trial_seed() for _ in range(700)]
    assert copy.to_json() == stream.to_json()


def test_nested_groups_are_drawn_in_order_of_names_at_every_level() -> None:
    shuffled = {"z": {"b": {"type": "double", "minval": 0, "maxval": 1}, "a": SPACE["n"]}, "a": 3}
    ordered = {"a": 3, "z": dict(sorted(shuffled["z"].items()))}  # type: ignore[attr-defined]
    first, second = (Space(space).draw(Stream(1)) for space in (shuffled, ordered))
    assert first == second
    values = Space(shuffled).values(first)
    assert values == {"a": 3, "z": {"a": int(first[0]), "b": first[1]}}


def test_a_single_category_takes_no_draw() -> None:
    stream = Stream(3)
    space = Space({"only": {"type": "categorical", "vals": ["x"]}, "c": [1, 2]})
    assert space.values(space.draw(stream)) == {"only": "x", "c": [1, 2]}
    assert stream.trial_seed() == Stream(3).trial_seed()


def axis(**leaf: Any) -> list[Any]:
    grid = Space({"a": leaf}).grid()
    return [grid[i]["a"] for i in range(len(grid))]


def test_axes_of_a_grid() -> None:
    assert axis(type="int", minval=0, maxval=10, count=4) == [0, 3, 7, 10]
    assert axis(type="int", minval=2, maxval=3, count=1) == [3]
    assert axis(type="int", minval=-3, maxval=-2, count=1) == [-3]
    assert axis(type="int", minval=1, maxval=3, count=9) == [1, 2, 3]
    assert axis(type="double", minval=0, maxval=1, count=3) == [0, 0.5, 1]
    assert axis(type="double", minval=0, maxval=1, count=1) == [0.5]
    logs = axis(type="log", base=10, minval=-4, maxval=-2, count=3)
    assert logs == pytest.approx([1e-4, 1e-3, 1e-2])


def test_true_and_1_are_two_values_of_a_grid() -> None:
    assert axis(type="categorical", vals=[True, 1, 1.0, [1], [True]]) == [True, 1, 1.0, [1], [True]]


def test_the_whole_range_of_floats_has_finite_samples() -> None:
    whole = {"type": "double", "minval": -1.7e308, "maxval": 1.7e308}
    space, stream = Space({"a": whole}), Stream(1)
    drawn = [space.draw(stream)[0] for _ in range(200)]
    assert all(-1.7e308 <= number < 1.7e308 for number in drawn)
    assert min(drawn) < -1.5e308
    assert max(drawn) > 1.5e308
    assert axis(**whole, count=3) == [-1.7e308, 0, 1.7e308]
    assert axis(**whole, count=1) == [0]


@pytest.mark.parametrize("bits", [32, 33, 64, 65, 100])
def test_integers_are_drawn_from_the_whole_of_a_wide_range(bits: int) -> None:
    stream = Stream(1)
    drawn = [stream.integer(-5, 2**bits - 5) for _ in range(200)]
    assert all(-5 <= number < 2**bits - 5 for number in drawn)
    assert max(drawn) > 0.9 * 2**bits
    assert len({number % 2**20 for number in drawn}) > 190


def test_an_empty_group_is_one_value_of_a_grid() -> None:
    grid = Space({"group": {}, "b": {"type": "categorical", "vals": [1, 2]}}).grid()
    assert [grid[i] for i in range(len(grid))] == [{"b": 1, "group": {}}, {"b": 2, "group": {}}]


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({}, "at least one hyperparameter"),
        (
            {"a": {"type": "int", "minval": 0, "maxval": 3}},
            "hyperparameters.a: a grid search needs",
        ),
        ({"a": {"b": {"type": "categorical", "vals": [1, 1]}}}, "hyperparameters.a.b: the values"),
        ({"a": {"type": "categorical", "vals": []}}, "hyperparameters.a.vals"),
        ({"a": {"type": "int", "minval": 3, "maxval": 3, "count": 1}}, "minval < maxval"),
        ({"a": {"type": "log", "minval": 1, "maxval": 3, "base": 1}}, "other than 1"),
        ({"a": {"type": "flaot"}}, "hyperparameters.a.type"),
        ({"a": {"type": "double", "minval": 0}}, "`maxval` is missing"),
    ],
)
def test_grids_that_cannot_be_are_refused(space: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Space(space).grid()
