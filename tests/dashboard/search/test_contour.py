"""Contours of two hyperparameters."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined.dashboard.search.contour import Column, contour
from tests.dashboard.served import Served


def test_a_contour_counts_every_trial_with_a_result(shown: Served) -> None:
    found = shown.json("/api/experiments/1/contour", x="lr", y="net.activation", bins=4)
    assert sum(map(sum, found["count"])) == 16
    assert found["y"] == ["gelu", "relu", "tanh"]
    assert len(found["x"]) == 5
    best = min(value for row in found["z"] for value in row if value is not None)
    assert best == shown.json("/api/experiments/1")["best_validation"]
    assert shown.client.get("/api/experiments/1/contour?x=nope&y=lr").status_code == 404


@given(
    st.lists(
        st.tuples(
            st.floats(0.001, 10), st.sampled_from(["a", None, 3]), st.floats(-5, 5) | st.none()
        ),
        max_size=60,
    ),
    st.integers(2, 8),
    st.booleans(),
    st.sampled_from(["log", "double", "const"]),
)
def test_a_contour_holds_the_best_of_each_cell(
    rows: list[tuple[float, Any, float | None]], bins: int, smaller: bool, kind: str
) -> None:
    x, y = Column([row[0] for row in rows], kind), Column([row[1] for row in rows], "categorical")
    found = contour(x, y, [row[2] for row in rows], bins, smaller)
    assert len({row[0] for row in rows}) < 2 or kind == "const" or found["x_is_range"]
    counted = [v for _, y, v in rows if v is not None and y is not None]
    assert sum(map(sum, found["count"])) == len(counted)
    cells = [value for row in found["z"] for value in row if value is not None]
    if counted:
        pick = min if smaller else max
        assert pick(cells) == pick(counted)
    assert all(
        (value is None) == (count == 0)
        for z, counts in zip(found["z"], found["count"], strict=True)
        for value, count in zip(z, counts, strict=True)
    )


def test_cells_are_even_in_the_way_the_values_were_drawn() -> None:
    values = [0.0001, 0.001, 0.01, 1.0]
    other = Column(["a"] * 4)
    for kind, edges in (("log", [0.0001, 0.01, 1.0]), ("double", [0.0001, 0.50005, 1.0])):
        found = contour(Column(values, kind), other, values, 2, True)
        assert found["x"] == pytest.approx(edges)
