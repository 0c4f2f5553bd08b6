"""Parameters of requests: what is taken, and the sentence for what is refused."""

from __future__ import annotations

import re
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from determined.dashboard.app import endpoints
from determined.dashboard.endpoints.endpoints import ApiError, Endpoint, Routes
from determined.dashboard.endpoints.parameters import (
    ColumnKey,
    Flag,
    Id,
    Number,
    OneOf,
    Separated,
    SeriesKey,
    ShortName,
    ShortText,
)

_NO_KEY = "value: expected TRIAL:GROUP:NAME or TRIAL:GROUP:NAME:batches, got '1:loss'."
_TYPES: dict[str, Any] = {
    "id": Id,
    "number": Number,
    "flag": Flag,
    "text": ShortText,
    "name": ShortName,
    "choice": Annotated[str, OneOf(("a", "b"))] | ColumnKey,
    "series": SeriesKey,
    "list": Annotated[tuple[Id, ...], Field(max_length=3), Separated()],
}


def _endpoint(value: Any) -> Endpoint:
    """An endpoint with one parameter, `value`, of a type."""

    def function(view: None, value: Any) -> None: ...

    function.__annotations__["value"] = value
    routes = Routes("test")
    routes.get("/test")(function)
    return routes.endpoints[0]


@pytest.mark.parametrize("name", _TYPES)
@given(text=st.text(max_size=30) | st.from_regex(r"-?[0-9.eE:;,abhprm]{0,20}", fullmatch=True))
def test_any_text_is_taken_or_refused_with_a_sentence(name: str, text: str) -> None:
    endpoint = _endpoint(_TYPES[name])
    try:
        endpoint.arguments({}, {"value": [text]})
    except ApiError as error:
        refused = error
    else:
        return
    assert refused.status == 422
    assert re.fullmatch(r"value: expected .+, got .+\.", refused.error, re.DOTALL)
    assert len(refused.error) < 300


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("id", "x", "value: expected an integer, got 'x'."),
        ("id", "0", "value: expected at least 1, got '0'."),
        ("id", "", "value: expected a value, got none."),
        ("number", "nan", "value: expected a number, got 'nan'."),
        ("flag", "2", "value: expected 0 or 1, got '2'."),
        ("text", "a" * 201, f"value: expected at most 200 characters, got '{'a' * 57}...'."),
        ("series", "1:loss", _NO_KEY),
        ("list", "1,2,3,4", 'value: expected at most 3 values, got ["1", "2", "3", "4"].'),
        ("list", "1,x", "value: expected an integer, got 'x'."),
    ],
)
def test_an_error_says_what_was_expected_and_what_came(name: str, text: str, error: str) -> None:
    with pytest.raises(ApiError) as refused:
        _endpoint(_TYPES[name]).arguments({}, {"value": [text]})
    assert refused.value.error == error


def test_all_alternatives_are_named() -> None:
    with pytest.raises(ApiError, match=r"value: expected 'a' or 'b' or text like .+, got 'c'\."):
        _endpoint(_TYPES["choice"]).arguments({}, {"value": ["c"]})


@given(low=st.integers(-50, 50), size=st.integers(0, 50), value=st.integers(-200, 200))
def test_limits_of_whole_numbers_are_kept(low: int, size: int, value: int) -> None:
    endpoint = _endpoint(Annotated[int, Field(ge=low, le=low + size)])
    if low <= value <= low + size:
        assert endpoint.arguments({}, {"value": [str(value)]}) == {"value": value}
    else:
        with pytest.raises(ApiError):
            endpoint.arguments({}, {"value": [str(value)]})


def test_a_parameter_is_taken_once_and_only_if_known() -> None:
    endpoint = next(e for e in endpoints() if e.path == "/api/experiments/{id}/trials")
    assert _arguments(endpoint, {"limit": ["5"]})["limit"] == 5
    assert _arguments(endpoint, {})["limit"] == 100
    assert _arguments(endpoint, {"state": ["ACTIVE,ERROR"]})["wanted"].state == ("ACTIVE", "ERROR")
    for query in ({"limit": ["5", "6"]}, {"nope": ["1"]}, {"id": ["2"]}):
        with pytest.raises(ApiError):
            _arguments(endpoint, query)


def _arguments(endpoint: Endpoint, query: dict[str, list[str]]) -> dict[str, Any]:
    return endpoint.arguments({"id": "1"}, query)
