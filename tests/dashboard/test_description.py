"""The API keeps what its description says, whatever is asked, and all of it is described."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import load_all_checks

from determined.dashboard.app import endpoints
from determined.dashboard.endpoints.endpoints import Endpoint
from determined.dashboard.endpoints.kinds import (
    BadValue,
    Choice,
    Flag,
    Integer,
    Kind,
    Many,
    Number,
    SeriesKey,
    Text,
)
from determined.dashboard.endpoints.schema import openapi
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


_questions = _schema({"GET"})
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


@_questions.parametrize()  # type: ignore[untyped-decorator]  # made at run time
@_settings
def test_any_question_gets_an_answer_as_described(case: Any, shown: Served) -> None:
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
    import re

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


def test_parameters_of_functions_are_those_declared() -> None:
    import inspect

    for endpoint in endpoints():
        wanted = inspect.signature(endpoint.function).parameters
        takes_more = any(p.kind is p.VAR_KEYWORD for p in wanted.values())
        declared = {f"{n}_" if n == "from" else n for n in endpoint.parameters}
        declared |= {"view"} | ({"body"} if endpoint.body is not None else set())
        named = {name for name, p in wanted.items() if p.kind is not p.VAR_KEYWORD}
        assert named <= declared if takes_more else named == declared, endpoint.path


_KINDS: list[Kind] = [
    Integer(1, 1000),
    Number(-5, 5),
    Number(),
    Flag(),
    Text(20),
    Text(20, "[a-z]+", 1),
    Choice(("a", "b"), ("hparam",)),
    SeriesKey(),
]


@pytest.mark.parametrize(
    "kind", [*_KINDS, Many(Integer(1), 3)], ids=lambda kind: type(kind).__name__
)
@given(text=st.text(max_size=30) | st.from_regex(r"-?[0-9.eE:;,abhprm]{0,20}", fullmatch=True))
def test_any_text_is_taken_or_refused_with_words(kind: Kind, text: str) -> None:
    try:
        kind.parse(text)
    except BadValue as error:
        said = str(error)
    else:
        return
    assert said.startswith("expected")
    assert len(said) < 300


@given(low=st.integers(-50, 50), size=st.integers(0, 50), value=st.integers(-200, 200))
def test_limits_of_whole_numbers_are_kept(low: int, size: int, value: int) -> None:
    kind = Integer(low, low + size)
    if low <= value <= low + size:
        assert kind.parse(str(value)) == value
    else:
        with pytest.raises(BadValue):
            kind.parse(str(value))


def test_a_parameter_is_taken_once_and_only_if_known() -> None:
    endpoint = next(e for e in endpoints() if e.path == "/api/experiments/{id}/trials")
    assert _asked(endpoint, {"limit": ["5"]})["limit"] == 5
    assert _asked(endpoint, {})["limit"] == 100
    for query in ({"limit": ["5", "6"]}, {"nope": ["1"]}, {"id": ["2"]}):
        with pytest.raises(BadValue):
            _asked(endpoint, query)


def _asked(endpoint: Endpoint, query: dict[str, list[str]]) -> dict[str, Any]:
    return endpoint.arguments({"id": "1"}, query)
