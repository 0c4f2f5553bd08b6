"""Requests that an endpoint refuses: methods, bodies, parameters."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined.dashboard.server import access as access_module
from tests.dashboard.served import Served


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "BREW", "CONNECT", "get"])
def test_other_methods_are_refused(shown: Served, method: str) -> None:
    cookie = f"{shown.access.cookie_name}={shown.access.cookie}"
    head = f"{method} /api/session HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n"
    answer = shown.raw(f"{head}Connection: close\r\n\r\n".encode())
    assert re.match(rb"HTTP/1.1 4\d\d ", answer), answer[:100]


def test_head_answers_like_get_without_a_body(shown: Served) -> None:
    for path in ("/api/session", "/queue", "/static/js/api.js"):
        answer = shown.client.head(path)
        assert answer.status_code == 200
        assert answer.content == b""


def test_large_requests_are_refused(shown: Served) -> None:
    long_query = shown.client.get("/api/experiments", params={"search": "a" * 20_000})
    assert long_query.status_code in (400, 414)
    just_too_long = shown.client.get(f"/api/experiments?search={'a' * 15_000}")
    assert just_too_long.status_code in (400, 414, 422)
    body = shown.client.patch(
        "/api/experiments/1", content=b"x" * (access_module.LARGEST_BODY + 1), headers=shown.verbs
    )
    assert body.status_code == 413
    headers = shown.client.get("/api/session", headers={"X-Large": "a" * 100_000})
    assert 400 <= headers.status_code < 500


def test_a_body_without_a_length_is_cut_off(shown: Served) -> None:
    def endless() -> object:
        while True:
            yield b"x" * 65536

    sent = iter(endless())  # type: ignore[call-overload]
    pieces = (next(sent) for _ in range(40))
    answer = shown.client.patch("/api/experiments/1", content=pieces, headers=shown.verbs)
    assert answer.status_code == 413


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b"[]", 422),
        (b"null", 422),
        (b'{"name": NaN}', 400),
        (b'{"name": 1}', 422),
        (b'{"name": "\\ud800"}', 422),
        (b'{"name": "a\\u0000"}', 422),
        (b'{"state": "COMPLETED"}', 422),
        (b'{"labels": "a"}', 422),
        (b'{"labels": [""]}', 422),
        (b"{}", 422),
        (b"", 422),
        (b"[" * 100_000, 400),
    ],
)
def test_odd_bodies_are_refused(shown: Served, body: bytes, status: int) -> None:
    answer = shown.client.patch("/api/experiments/1", content=body, headers=shown.verbs)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]


@pytest.mark.parametrize(
    "query",
    [
        "limit=-1",
        "limit=1e3",
        "limit=99999999999999999999",
        "limit=１",
        "offset=x",
        "limit=1&limit=2",
        "nope=1",
        "sort=;drop table trial",
        "sort=hparam:",
        "sort=hparam:%00",
        "state=NOPE",
        "metric_min=nan",
        "metric_min=inf",
        "project=0",
        "archived=2",
        "columns=hparam",
        "search=%00",
    ],
)
def test_odd_parameters_are_named(shown: Served, query: str) -> None:
    answer = shown.client.get(f"/api/experiments?{query}")
    assert answer.status_code == 422, answer.text
    assert query.split("=")[0] in answer.json()["error"]


@pytest.mark.parametrize("name", ['a"b', "a\\", "'", "$.a", "a.b.c", "ä", "\u202e", "a]", "%", "*"])
def test_odd_names_of_columns_are_only_names(shown: Served, name: str) -> None:
    for key in (f"hparam:{name}", f"metric:{name}.{name}"):
        shown.json("/api/experiments", sort=key, columns=key)
        shown.json("/api/experiments/1/trials", sort=key, columns=key)


@given(st.text(max_size=60))
def test_any_search_text_is_answered(shown: Served, text: str) -> None:
    answer = shown.client.get(f"/api/experiments?search={quote(text, errors='replace')}")
    assert answer.status_code == (422 if "\0" in text else 200)
