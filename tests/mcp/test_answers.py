"""Answers are small, strict JSON."""

from __future__ import annotations

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from determined.mcp.answers import filled, page, shortened, to_text

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(_JSON)
def test_any_answer_is_one_line_of_strict_json(value: object) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    text = to_text(value)
    json.loads(text, parse_constant=refuse)
    assert "\n" not in text


def test_numbers_have_six_digits_and_names_where_json_has_none() -> None:
    assert to_text({"a": 1 / 3, "b": [math.nan, -math.inf], "c": 12345678}) == (
        '{"a":0.333333,"b":["NaN","-Infinity"],"c":12345678}'
    )


@given(st.text(), st.integers(20, 200))
def test_a_text_is_cut_in_its_middle(text: str, most: int) -> None:
    found = shortened(text, most)
    assert len(found) <= max(most, len(text)) + 60
    assert "\x1b" not in found


def test_what_is_empty_is_left_out_but_not_what_is_zero() -> None:
    assert filled(a=None, b="", c=[], d={}, e=0, f=False) == {"e": 0, "f": False}
    assert page([1, 2, 3], 2, "rows") == {"rows": [1, 2], "more": True}
    assert page([1, 2], 2, "rows") == {"rows": [1, 2]}
