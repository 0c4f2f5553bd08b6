"""Values in the form in which the page shows them."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from determined.dashboard.endpoints.answers import differing, flat, shown_state

_values = st.none() | st.integers() | st.text(max_size=3) | st.floats() | st.lists(st.integers())


_groups = st.recursive(
    _values,
    lambda inner: st.dictionaries(st.text("abc", min_size=1, max_size=3), inner, min_size=1),
    max_leaves=6,
)


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), _groups, max_size=4))
def test_flat_values_are_the_leaves(values: dict[str, Any]) -> None:
    def leaf(path: str) -> Any:
        found: Any = values
        for part in path.split("."):
            found = found[part]
        return found

    for name, value in flat(values).items():
        assert leaf(name) is value or leaf(name) == value  # lists are copied, NaN is not itself
        assert not (isinstance(value, dict) and value)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 1)), max_size=5))
def test_names_differ_if_any_two_rows_do(rows: list[dict[str, int]]) -> None:
    missing = object()
    for name, differs in differing(rows).items():
        assert differs == (len({row.get(name, missing) for row in rows}) > 1)


def test_rows_with_nan_do_not_differ_and_true_is_not_one() -> None:
    assert differing([{"a": math.nan}, {"a": math.nan}]) == {"a": False}
    assert differing([{"a": True}, {"a": 1}]) == {"a": True}
    assert shown_state("PAUSED", True) == "PAUSED"
