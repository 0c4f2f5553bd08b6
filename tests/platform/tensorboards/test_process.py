"""The guard before TensorBoard: who is let in, and where a token leads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from determined.platform.tensorboards.process import Guard


def _application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    start_response("200 OK", [])
    return [b"secret"]


class _Browser:
    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def get(self, host: str, query: str = "", **headers: str) -> tuple[int, dict[str, str], bytes]:
        environ = {"HTTP_HOST": host, "PATH_INFO": "/a", "QUERY_STRING": query}
        environ |= {f"HTTP_{name.upper()}": value for name, value in headers.items()}
        seen: list[Any] = []
        body = b"".join(self._guard(environ, lambda *answer: seen.extend(answer)))
        return int(seen[0].split()[0]), dict(seen[1]), body


@pytest.fixture
def browser() -> _Browser:
    return _Browser(Guard(_application, "tb-1", "localhost", "token", "once"))


def test_the_printed_address_leads_to_a_cookie_of_its_own_origin(browser: _Browser) -> None:
    status, headers, body = browser.get("tb-1.localhost:6006", "token=token&x=1")
    assert (status, headers["Location"], body) == (303, "/a?x=1", b"")
    cookie = headers["Set-Cookie"].partition(";")[0]
    assert "token" not in cookie.partition("=")[2]
    assert "HttpOnly" in headers["Set-Cookie"]
    assert "Domain" not in headers["Set-Cookie"]
    assert browser.get("tb-1.localhost:6006", cookie=cookie)[::2] == (200, b"secret")


def test_a_token_at_another_name_of_this_machine_leads_to_the_own_one(browser: _Browser) -> None:
    for host in ("localhost:6006", "127.0.0.1:6006", "[::1]:6006"):
        status, headers, _ = browser.get(host, "token=token")
        assert (status, headers["Location"]) == (303, "//tb-1.localhost:6006/a?token=token")
        assert "Set-Cookie" not in headers


def test_a_token_for_a_command_line_is_valid_once(browser: _Browser) -> None:
    assert browser.get("tb-1.localhost", "token=once")[0] == 303
    assert browser.get("tb-1.localhost", "token=once")[0] == 403
    assert browser.get("tb-1.localhost", "token=token")[0] == 303


@pytest.mark.parametrize(
    ("host", "query", "headers"),
    [
        ("tb-1.localhost", "", {}),
        ("tb-1.localhost", "token=", {}),
        ("tb-1.localhost", "token=tokem", {}),
        ("tb-1.localhost", "token=é", {}),
        ("tb-1.localhost", "", {"cookie": "det_tensorboard=token"}),
        ("tb-1.localhost", "", {"cookie": "det_tensorboard="}),
        ("tb-1.localhost", "", {"authorization": "Bearer"}),
        ("tb-1.localhost", "", {"authorization": "Basic token"}),
        ("evil.example", "token=token", {}),
        ("evil.example", "", {"authorization": "Bearer token"}),
        ("tb-2.localhost", "token=token", {}),
        ("", "token=token", {}),
    ],
)
def test_strangers_see_nothing(
    browser: _Browser, host: str, query: str, headers: dict[str, str]
) -> None:
    status, answer, body = browser.get(host, query, **headers)
    assert status == 403
    assert b"secret" not in body
    assert "Set-Cookie" not in answer


def test_scripts_send_the_token_as_a_header(browser: _Browser) -> None:
    assert browser.get("localhost:6006", authorization="Bearer token")[::2] == (200, b"secret")


def test_a_host_that_was_asked_for_is_one_of_its_names() -> None:
    browser = _Browser(Guard(_application, "tb-1", "10.0.0.5", "token"))
    assert browser.get("10.0.0.5:6006", "token=token")[0] == 303
    assert browser.get("10.0.0.6:6006", "token=token")[0] == 403
