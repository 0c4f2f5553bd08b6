"""A dashboard on a real socket, in a thread of the test."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import uvicorn

from determined.dashboard.app import make_app
from determined.dashboard.server.access import CSRF_HEADER, Access
from determined.dashboard.server.serve import bind, settings
from determined.platform.homes.home import Home
from determined.platform.service import Service

TOKEN = "a-token-that-only-this-test-knows"


class Served:
    """A running dashboard; `client` has come in by the token, `stranger` has not."""

    def __init__(self, home: Home, port: int, access: Access, is_whole: bool = True) -> None:
        self.home = home
        self.port = port
        self.access = access
        self.url = f"http://127.0.0.1:{port}"
        self.stranger = httpx.Client(base_url=self.url, timeout=60)
        self.client = httpx.Client(base_url=self.url, timeout=60)
        welcome = self.client.get("/", params={"token": TOKEN})
        assert welcome.status_code == 303
        csrf = self.json("/api/session")["csrf"] if is_whole else ""
        self.verbs = {CSRF_HEADER: csrf}

    def json(self, path: str, /, **params: Any) -> Any:
        """The answer to a question that has one."""
        answer = self.client.get(path, params=params)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text}"
        return answer.json()

    def post(self, path: str, body: Any = None) -> httpx.Response:
        """Send a verb as the page does."""
        return self.client.post(path, json=body, headers=self.verbs)

    def series(self, **params: Any) -> tuple[dict[str, Any], list[dict[str, list[float]]]]:
        """Curves, with their header."""
        answer = self.client.get("/api/series", params=params)
        assert answer.status_code == 200, answer.text
        return read_series(answer.content)

    def raw(self, request: bytes, seconds: float = 30) -> bytes:
        """What comes back for the bytes of a request, to the end of the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=seconds) as connection:
            connection.sendall(request)
            parts = []
            with contextlib.suppress(ConnectionResetError):
                while part := connection.recv(65536):
                    parts.append(part)
        return b"".join(parts)

    def close(self) -> None:
        self.client.close()
        self.stranger.close()


def read_series(content: bytes) -> tuple[dict[str, Any], list[dict[str, list[float]]]]:
    """The header and the columns of an answer, read as a browser does."""
    (length,) = struct.unpack_from("<I", content)
    head = json.loads(content[4 : 4 + length])
    assert (4 + length) % 8 == 0
    rows = []
    for series in head["series"]:
        columns = {}
        for column in series["columns"]:
            kind = {"f8": "d", "f4": "f"}[column["type"]]
            assert column["offset"] % 8 == 0
            place = 4 + length + column["offset"]
            columns[column["name"]] = list(
                struct.unpack_from(f"<{series['n']}{kind}", content, place)
            )
        rows.append(columns)
    return head, rows


@contextlib.contextmanager
def served(home: Home, *, is_whole: bool = True) -> Iterator[Served]:
    """Serve a home for as long as the `with` block takes; one that is not whole has no session."""
    access = Access(TOKEN, label="test")
    listener = bind("127.0.0.1", 0)
    server = uvicorn.Server(settings(make_app(lambda: Service(home), access)))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        deadline = time.monotonic() + 60
        while not server.started:
            assert thread.is_alive(), "the server ended at its start"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        found = Served(home, listener.getsockname()[1], access, is_whole)
        yield found
        found.close()
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
        assert not thread.is_alive(), "the server does not end"
