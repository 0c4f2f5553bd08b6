"""Who is let in, and what every answer says; against a real server."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from starlette.datastructures import Headers

from determined.dashboard.app import endpoints
from determined.dashboard.server.access import CSRF_HEADER, Access
from determined.dashboard.server.serve import make_access
from determined.platform.homes.home import Home
from tests.dashboard.served import TOKEN, Served


def test_without_the_cookie_nothing_is_shown(shown: Served) -> None:
    for path in ("/", "/experiments/1", "/queue", "/nowhere"):
        answer = shown.stranger.get(path)
        assert answer.status_code == 401, path
        assert answer.headers["content-type"].startswith("text/html")
    for path in ("/api/session", "/api/experiments/1", "/static/x.js", "/api/nope"):
        answer = shown.stranger.get(path)
        assert answer.status_code == 401, path
        assert "error" in answer.json()


def test_every_endpoint_asks_for_the_cookie(shown: Served) -> None:
    for endpoint in endpoints():
        path = re.sub(r"{\w+}", "1", endpoint.path)
        answer = shown.stranger.request(endpoint.method, path)
        assert answer.status_code == 401, endpoint.path


def test_the_token_gives_a_cookie_and_leaves_the_address(shown: Served) -> None:
    answer = shown.stranger.get(f"/experiments/1/curves?log=1&token={TOKEN}&x=%3Cb%3E%26")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/experiments/1/curves?log=1&x=%3Cb%3E%26"
    cookie = answer.headers["set-cookie"]
    for word in ("HttpOnly", "SameSite=strict", "Path=/"):
        assert word.lower() in cookie.lower()
    assert TOKEN not in cookie
    assert TOKEN not in answer.text
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"
    shown.stranger.cookies.clear()


def _welcome(access: Access, host: str, mode: str) -> tuple[str, bool]:
    """Where a token leads, and whether it left a cookie."""
    scope = {"method": "GET", "path": "/a", "raw_path": b"/a", "query_string": b"x=1&token=abc"}
    answer = access.welcome(scope, Headers({"host": host, "sec-fetch-mode": mode}))
    assert answer is not None
    return answer.headers["location"], "set-cookie" in answer.headers


def test_browsers_keep_their_cookie_under_a_name_of_the_home_alone(tmp_path: Path) -> None:
    made = make_access(Home(tmp_path), "127.0.0.1")
    own = made.own_name
    assert re.fullmatch(r"det-[0-9a-f]{8}\.localhost", own)
    assert made.own_name != make_access(Home(tmp_path / "other"), "127.0.0.1").own_name
    assert made.knows_host(f"{own}:8090")
    access = Access("abc", made.names, made.label, own)
    for host in ("127.0.0.1:8090", "localhost:8090", "[::1]:8090"):
        onward = f"http://{own}:8090/a?x=1&token=abc"
        assert _welcome(access, host, "navigate") == (onward, False)
        assert _welcome(access, host, "cors") == ("/a?x=1", True)  # a script has its own cookies
    assert _welcome(access, f"{own}:8090", "navigate") == ("/a?x=1", True)
    assert make_access(Home(tmp_path), "0.0.0.0").own_name == ""


def test_a_one_time_token_works_once(shown: Served) -> None:
    token = shown.access.make_one_time_token()
    assert shown.stranger.get("/", params={"token": token}).status_code == 303
    shown.stranger.cookies.clear()
    assert shown.stranger.get("/", params={"token": token}).status_code == 401


def test_a_link_from_another_site_leads_on_by_a_page(shown: Served) -> None:
    answer = shown.stranger.get(
        f"/compare?trials=1&x=%22%3E%3Cb%3E&token={TOKEN}", headers={"Sec-Fetch-Site": "cross-site"}
    )
    shown.stranger.cookies.clear()
    assert answer.status_code == 200
    assert "set-cookie" in answer.headers
    assert 'content="0;url=/compare?trials=1&amp;x=%22%3E%3Cb%3E"' in answer.text
    assert "<b>" not in answer.text
    assert TOKEN not in answer.text


@pytest.mark.parametrize(
    "token", ["", "wrong", TOKEN[:-1], f"{TOKEN}x", "ä" * 40, "\0", "%", "a" * 9000]
)
def test_a_wrong_token_is_refused(shown: Served, token: str) -> None:
    answer = shown.stranger.get("/", params={"token": token})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("path", ["//evil.example/", "/%2F/evil.example", "/\\evil.example", "///"])
def test_the_token_never_leads_to_another_site(shown: Served, path: str) -> None:
    request = f"GET {path}?token={TOKEN} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    answer = shown.raw(request.encode())
    place = re.search(rb"(?mi)^location: (.*?)\r$", answer)
    assert place is None or re.fullmatch(rb"/(?![/\\]).*", place[1]), answer


def test_the_token_is_not_taken_by_the_api(shown: Served) -> None:
    assert shown.stranger.get("/api/session", params={"token": TOKEN}).status_code == 401


@pytest.mark.parametrize(
    "cookie",
    [
        "",
        "det_dashboard_test=",
        "det_dashboard_test=wrong",
        f"det_dashboard_test={TOKEN}",
        "=;;=",
        "\x7f",
    ],
)
def test_a_wrong_cookie_is_refused(shown: Served, cookie: str) -> None:
    answer = shown.stranger.get("/api/session", headers={"Cookie": cookie})
    assert answer.status_code == 401


@pytest.mark.parametrize(
    ("host", "is_known"),
    [
        ("127.0.0.1:8090", True),
        ("localhost:9000", True),
        ("LOCALHOST", True),
        ("[::1]:8090", True),
        ("192.168.1.7", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example:8090", False),
        ("127.0.0.1:8090@evil.example", False),
        ("evil.example:127.0.0.1", False),
        ("", False),
        ("[::1", False),
        ("[::1]evil", False),
        ("0x7f.1.evil", False),
    ],
)
def test_only_names_of_this_machine_are_answered(shown: Served, host: str, is_known: bool) -> None:
    assert shown.client.get("/api/session", headers={"Host": host}).status_code == (
        200 if is_known else 403
    )


def test_a_request_without_a_host_is_refused(shown: Served) -> None:
    cookie = f"Cookie: {shown.access.cookie_name}={shown.access.cookie}"
    answer = shown.raw(f"GET /api/session HTTP/1.0\r\n{cookie}\r\n\r\n".encode())
    assert b" 403 " in answer.split(b"\r\n")[0]


@pytest.mark.parametrize("method", ["POST", "PATCH"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {CSRF_HEADER: ""},
        {CSRF_HEADER: "wrong"},
        {CSRF_HEADER: TOKEN},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_foreign_page_cannot_change_anything(
    shown: Served, method: str, headers: dict[str, str]
) -> None:
    path = "/api/experiments/1" + ("/archive" if method == "POST" else "")
    proof = {} if CSRF_HEADER in headers or not headers else shown.verbs
    answer = shown.client.request(method, path, headers={**proof, **headers}, json={"name": "x"})
    assert answer.status_code == 403
    assert shown.json("/api/experiments/1")["name"] == "digits-adaptive"


def test_a_form_of_a_foreign_page_is_refused(shown: Served) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded", "Origin": "http://evil.example"}
    answer = shown.client.post("/api/experiments/1/archive", headers=form, content=b"a=b")
    assert answer.status_code == 403


def test_a_foreign_page_cannot_read_the_api(shown: Served) -> None:
    answer = shown.client.get("/api/experiments", headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 403
    allowed = shown.client.get("/api/session", headers={"Origin": "http://evil.example"})
    assert "access-control-allow-origin" not in allowed.headers


def test_the_proof_for_verbs_gives_neither_cookie_nor_token_away(shown: Served) -> None:
    session = shown.json("/api/session")
    assert session["csrf"] == shown.access.csrf
    assert TOKEN not in json.dumps(session)
    assert shown.access.cookie not in json.dumps(session)
    assert len({TOKEN, shown.access.cookie, shown.access.csrf}) == 3


@pytest.mark.parametrize(
    "path", ["/", "/api/session", "/nowhere", "/api/trials/0", "/static/js/api.js"]
)
def test_every_answer_carries_the_policy(shown: Served, path: str) -> None:
    for client in (shown.client, shown.stranger):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers
        assert headers["cache-control"]


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/%2e%2e/app.py",
        "/static//etc/passwd",
        "/static/%00",
        "/static/index.html%00.js",
        "/static/.hidden.js",
        "/static/js\\..\\..\\app.py",
        "/static/" + "a/" * 3000 + "x.js",
        "/../../../etc/passwd",
        "/%c0%ae%c0%ae/",
        "/api/../static/../../access.py",
    ],
)
def test_no_path_leads_out(shown: Served, path: str) -> None:
    cookie = f"{shown.access.cookie_name}={shown.access.cookie}"
    head = (
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
    )
    answer = shown.raw(head.encode("latin-1"))
    assert re.match(rb"HTTP/1.1 4\d\d ", answer), answer[:200]
    assert b"def " not in answer
    assert b"root:" not in answer


@pytest.mark.parametrize(
    "path",
    ["../../../store.db", "/etc/passwd", "..", "train.py/", "train.py\0", "data", "a" * 900, "ä"],
)
def test_only_files_of_the_code_are_shown(shown: Served, path: str) -> None:
    answer = shown.client.get("/api/experiments/1/code/file", params={"path": path})
    assert answer.status_code in (404, 422)


def test_links_in_code_and_checkpoints_are_not_followed(shown: Served, tmp_path: Path) -> None:
    from determined.dashboard.archives import tar_of

    secret = tmp_path / "secret"
    secret.write_text("not for others")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link").symlink_to(secret)
    (folder / "file").write_text("fine")
    content = b"".join(tar_of(folder, "name"))
    assert b"fine" in content
    assert b"not for others" not in content


def test_names_of_users_are_data_and_never_markup(shown: Served) -> None:
    answer = shown.client.get("/api/experiments")
    assert answer.headers["content-type"] == "application/json"
    assert any("<b>" in row["name"] for row in answer.json()["rows"])
    page = shown.client.get("/experiments/3")
    assert "<b>bold" not in page.text


def test_homes_have_cookies_of_their_own(tmp_path: Path) -> None:
    accesses = [make_access(Home(tmp_path / name), "127.0.0.1") for name in "ab"]
    assert accesses[0].cookie_name != accesses[1].cookie_name
    assert accesses[0].cookie != accesses[1].cookie
