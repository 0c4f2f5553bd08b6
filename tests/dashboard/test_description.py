"""The API keeps what its description says, whatever is asked, and all of it is described."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import Field
from schemathesis.checks import load_all_checks

from determined.dashboard.app import endpoints
from determined.dashboard.endpoints.endpoints import ApiError, Endpoint, Routes
from determined.dashboard.endpoints.openapi import openapi
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
from determined.platform.homes.home import Home
from determined.platform.supervisor import presence
from determined.store import Writer
from tests.dashboard.served import Served, served
from tests.support.faults import factor

load_all_checks()
_EXAMPLES = 8 * factor()
_STREAM = "text/event-stream"


def _schema(wanted: set[str]) -> Any:
    description = openapi(
        [e for e in endpoints() if e.method in wanted and e.media_type != _STREAM]
    )
    return schemathesis.openapi.from_dict(description)


_queries = _schema({"GET"})
_verbs = _schema({"POST", "PATCH"})
_settings = settings(
    max_examples=_EXAMPLES,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


def _check(case: Any, where: Served, headers: dict[str, str]) -> None:
    """Every answer is one that the description knows, and never a fault of ours."""
    cookies = {where.access.cookie_name: where.access.cookie}
    answer = case.call(base_url=where.url, headers=headers, cookies=cookies)
    assert answer.status_code < 500, f"{case.as_curl_command()}\n{answer.text}"
    if answer.status_code == 400 and answer.text == "Invalid HTTP request received.":
        return  # not even HTTP: nothing of ours has seen it
    if answer.status_code >= 400:
        jsonschema.validate(answer.json(), openapi([])["components"]["schemas"]["Problem"])
        return
    case.validate_response(answer, checks=_checks())


def _checks() -> list[Any]:
    from schemathesis.specs.openapi import checks

    return [
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
    ]


@_queries.parametrize()  # type: ignore[untyped-decorator]  # made at run time
@_settings
def test_any_query_gets_an_answer_as_described(case: Any, shown: Served) -> None:
    _check(case, shown, {})


@_verbs.parametrize()  # type: ignore[untyped-decorator]
@_settings
def test_any_verb_gets_an_answer_as_described(case: Any, changed: Served) -> None:
    _check(case, changed, changed.verbs)


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A home for verbs: one that adds a model starts a supervisor."""
    home = Home(tmp_path_factory.mktemp("changed") / "home")
    Writer(home.path).close()
    with served(home) as found:
        yield found
    presence.stop(home)


def _paths(shown: Served) -> list[str]:
    uuid = shown.json("/api/experiments/1/checkpoints")["rows"][0]["uuid"]
    found = [
        *("/api/session", "/api/workspaces", "/api/projects", "/api/models", "/api/queue"),
        *(
            "/api/models/digits-net",
            "/api/compare?trials=1,5,20",
            f"/api/checkpoints/{uuid}/download",
        ),
    ]
    for number in (1, 2, 3, 5, 8, 9):
        found += [
            f"/api/experiments/{number}{rest}"
            for rest in (
                *("", "/trials", "/points", "/rungs", "/importance", "/checkpoints", "/code"),
                *("/logs?limit=9", "/logs?tail=1&limit=9", "/diff?other=1"),
            )
        ]
    for number in (1, 5, 17, 23, 25, 28, 30):
        found += [
            f"/api/trials/{number}{rest}"
            for rest in (
                "",
                "/logs?limit=9",
                "/logs?tail=1&limit=9",
                "/checkpoints",
                "/system",
                "/profile",
            )
        ]
    found += ["/api/experiments?columns=hparam:lr,metric:validation.accuracy&sort=hparam:lr"]
    return found


def test_what_is_there_is_shown_as_described(shown: Served) -> None:
    description = shown.json("/api/openapi.json")
    for path in _paths(shown):
        answer = shown.client.get(path)
        assert answer.status_code == 200, f"{path} {answer.text[:300]}"
        if answer.headers["content-type"] == "application/json":
            schema = _answer_schema(description, path.partition("?")[0])
            jsonschema.validate(answer.json(), schema | {"components": description["components"]})


def _answer_schema(description: dict[str, Any], path: str) -> dict[str, Any]:
    for template, methods in description["paths"].items():
        if re.fullmatch(re.sub(r"{\w+}", "[^/]+", template), path):
            if "{" in template and path in description["paths"]:
                continue
            content = methods["get"]["responses"]["200"]["content"]
            schema: dict[str, Any] = content["application/json"]["schema"]
            return schema
    raise AssertionError(f"{path} is not described")


def test_the_description_is_a_valid_one_and_names_everything() -> None:
    description = openapi(endpoints())
    described = {
        (method.upper(), path)
        for path, methods in description["paths"].items()
        for method in methods
    }
    assert described == {(endpoint.method, endpoint.path) for endpoint in endpoints()}
    names = [
        m["operationId"] for methods in description["paths"].values() for m in methods.values()
    ]
    assert len(names) == len(set(names))
    for methods in description["paths"].values():
        for method in methods.values():
            assert method["summary"].endswith(".")


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
