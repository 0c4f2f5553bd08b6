"""The dashboard among strangers: they are refused, it goes on, and its token stays its own."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import io
import re
import socket
from collections import Counter
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from determined.dashboard.app import endpoints
from determined.dashboard.endpoints.endpoints import Endpoint
from determined.platform.homes.home import Home
from determined.platform.supervisor import presence
from determined.store import Writer
from tests.dashboard.served import Served, served
from tests.faults.platform.hostile_home import FORMULA, POISON, make_hostile

_STREAM = "text/event-stream"
_TABLES = ("experiments.csv", "trials.csv?experiment=1")


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A dashboard of a home in which every name means harm."""
    home = tmp_path_factory.mktemp("http") / "home"
    make_hostile(home)
    with served(Home(home)) as found:
        yield found


@pytest.fixture(scope="module")
def shown_empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A dashboard of a home in which verbs find little to do."""
    home = tmp_path_factory.mktemp("http") / "empty"
    Writer(home).close()
    with served(Home(home)) as found:
        yield found
    presence.stop(Home(home))  # a model that was created has started it


_MALFORMED = {
    "nothing": b"",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "the next HTTP": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "the first HTTP": b"GET /\r\n\r\n",
    "no such HTTP": b"GET / HTTP/9.9\r\n\r\n",
    "only a line end": b"\r\n\r\n\r\n",
    "line ends of one kind": b"GET / HTTP/1.1\nHost: 127.0.0.1\n\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n",
    "an address as path": b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "a null byte in a header": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\0b\r\n\r\n",
    "a folded header": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\r\n b\r\n\r\n",
    "a header without a name": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n: x\r\n\r\n",
    "a header without a colon": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nnonsense\r\n\r\n",
    "a space before the colon": b"GET / HTTP/1.1\r\nHost : 127.0.0.1\r\n\r\n",
    "ten thousand headers": b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 10_000 + b"\r\n",
    "a long path": b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "a long method": b"A" * 100_000 + b" / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "a path with raw bytes": b"GET /\xff\xfe\x80 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "half a percent sign": b"GET /%f%zz%c3 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "no path": b"GET  HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "a star": b"OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "a tunnel": b"CONNECT evil.example:443 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "a web socket": b"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\n"
    b"Upgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n",
    "a negative length": b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
    "an endless length": b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: "
    + b"9" * 40
    + b"\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\n"
    b"Content-Length: 2\r\n\r\nab",
    "a length and pieces": b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /api/session HTTP/1.1\r\n\r\n",
    "pieces of nonsense": b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n"
    b"\r\nzz\r\nx\r\n0\r\n\r\n",
    "a huge piece": b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"ffffffffffffffff\r\nx",
    "an odd encoding": b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: xchunked\r\n\r\n",
}


@pytest.mark.parametrize("name", _MALFORMED)
def test_what_is_not_http_is_refused(shown: Served, name: str) -> None:
    cookie = f"Cookie: {shown.access.cookie_name}={shown.access.cookie}\r\n".encode()
    request = _MALFORMED[name]
    for sent in (request, request.replace(b"\r\n", b"\r\n" + cookie, 1)):
        with socket.create_connection(("127.0.0.1", shown.port), timeout=60) as connection:
            answer = b""
            with contextlib.suppress(OSError):  # it need not listen to the end
                connection.sendall(sent)
                connection.shutdown(socket.SHUT_WR)
                while part := connection.recv(65536):
                    answer += part
        statuses = re.findall(rb"(?m)^HTTP/1\.1 (\d)", answer)
        assert set(statuses) <= {b"4"} or sent is not request, answer[:200]
        assert b"5" not in statuses, answer[:200]
    assert shown.json("/api/session")["version"]


_FIELDS = (
    POISON,
    "' OR 1=1; DROP TABLE experiment; --",
    "../../../../etc/passwd",
    "%00",
    "1 UNION SELECT token",
    "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    "[" * 500,
    "-1e999",
    "a" * 4000,
)


@pytest.mark.parametrize(
    "endpoint",
    [e for e in endpoints() if e.media_type != _STREAM],
    ids=lambda e: f"{e.method} {e.path}",
)
def test_every_field_takes_or_refuses_anything(
    shown: Served, shown_empty: Served, endpoint: Endpoint
) -> None:
    asked = shown if endpoint.method == "GET" else shown_empty
    usual = dict.fromkeys(endpoint.path_names, "1")
    properties = () if endpoint.body is None else endpoint.body.model_fields
    for field in [*endpoint.path_names, *endpoint.query_names, *properties]:
        for value in _FIELDS:
            places = {**usual, field: value}
            path = endpoint.path.format_map({k: quote(v, safe="") for k, v in places.items()})
            query = {field: value} if field in endpoint.query_names else {}
            body = {field: value} if endpoint.method != "GET" else None
            answer = asked.client.request(
                endpoint.method, path, params=query, json=body, headers=asked.verbs
            )
            assert answer.status_code < 500, f"{path} {query} {body}: {answer.text}"
            assert "root:" not in answer.text
    assert shown.json("/api/experiments")["total"] > 0


def test_names_that_mean_harm_are_only_data(shown: Served) -> None:
    for endpoint in endpoints():
        if endpoint.method != "GET" or endpoint.media_type == _STREAM:
            continue
        for number in ("1", "2", "3", "5", "9"):
            path = re.sub(r"{\w+}", number, endpoint.path)
            answer = shown.client.get(path)
            assert answer.status_code < 500, f"{path}: {answer.text[:500]}"
            assert "text/html" not in answer.headers.get("content-type", ""), path
            assert answer.headers["x-content-type-options"] == "nosniff"
    tables = [shown.client.get(f"/api/export/{name}").text for name in _TABLES]
    cells = [cell for table in tables for row in csv.reader(io.StringIO(table)) for cell in row]
    assert any(FORMULA in cell for cell in cells)
    assert not any(cell.startswith(FORMULA) for cell in cells)
    for page in ("/", "/experiments/1", f"/compare?trials={quote(POISON)}", f"/{quote(POISON)}"):
        assert "alert(1)" not in shown.client.get(page).text


def test_five_hundred_at_once_are_answered(shown: Served) -> None:
    cookie = f"{shown.access.cookie_name}={shown.access.cookie}"
    request = (
        "GET /api/experiments?limit=5 HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Cookie: {cookie}\r\nConnection: close\r\n\r\n"
    ).encode()

    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", shown.port)
        writer.write(request)
        answer = await reader.read()
        writer.close()
        return answer.split(b"\r\n")[0]

    async def all_at_once() -> Counter[bytes]:
        return Counter(await asyncio.gather(*(ask() for _ in range(500))))

    assert asyncio.run(all_at_once()) == {b"HTTP/1.1 200 OK": 500}


def test_three_hundred_slow_ones_hold_nobody_up(shown: Served) -> None:
    slow = []
    for number in range(300):
        connection = socket.create_connection(("127.0.0.1", shown.port), timeout=60)
        connection.sendall(b"GET / HTTP/1.1\r\nX: "[: 5 + number % 10])
        slow.append(connection)
    for _ in range(3):
        assert shown.json("/api/session")["version"]
    for connection in slow:
        connection.close()
