"""The API keeps what its description says, whatever is asked, and all of it is described."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import load_all_checks

from determined.dashboard.app import endpoints
from determined.dashboard.endpoints.openapi import openapi
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
