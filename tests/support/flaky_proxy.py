"""An HTTP server between a client and the real one, which fails on demand."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import re
import socketserver
import threading
from collections.abc import Callable, Iterator

# What to do with a request: None to pass it on, else one of KINDS, or something to wait for first.
Plan = Callable[[str, str, int], "str | threading.Event | None"]

KINDS = ("drop", "drop after", "half", "500", "503", "garbage")
_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"


class FlakyProxy:
    """Passes requests on to `target`, unless `plan(method, path, number)` wants a failure.

    `drop` closes the connection before the request is passed on, `drop after` when it is done but
    not answered, `half` in the middle of the answer. Requests are counted from 0 since the plan was
    set, and `seen` lists them with what became of them.
    """

    def __init__(self, target: str) -> None:
        self._target = target.removeprefix("http://")
        self._lock = threading.Lock()
        self.stop_failing()
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def fail(self, plan: Plan) -> None:
        """Set the plan and begin to count."""
        with self._lock:
            self.plan, self.seen = plan, list[tuple[str, str, str | None]]()

    def stop_failing(self) -> None:
        self.fail(lambda method, path, number: None)

    def decide(self, method: str, path: str) -> str | None:
        with self._lock:
            fate = self.plan(method, path, len(self.seen))
            self.seen.append((method, path, fate if isinstance(fate, str) else None))
        if isinstance(fate, threading.Event):
            assert fate.wait(30), "nobody opened the gate"
            return None
        return fate

    def forward(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self._target, timeout=30)
        try:
            connection.request(method, path, body or None, headers)
            response = connection.getresponse()
            return response.status, response.getheaders(), response.read()
        finally:
            connection.close()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Keep quiet: connections that break are what this is for."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: FlakyProxy

    def _handle(self) -> None:
        body = self._read_body()
        fate = self.proxy.decide(self.command, self.path)
        if fate in ("500", "503"):
            self._answer(int(fate), [("Content-Type", "application/xml")], _SLOW_DOWN)
            return
        if fate == "garbage":
            self.wfile.write(b"\x00\xff not HTTP\r\n\r\n")
        if fate in ("drop", "garbage"):
            self._hang_up()
            return
        headers = {key: value for key, value in self.headers.items() if key.lower() != "expect"}
        status, answer_headers, content = self.proxy.forward(self.command, self.path, headers, body)
        if fate == "drop after":
            self._hang_up()
        else:
            self._answer(status, answer_headers, content, is_cut=fate == "half")

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _handle

    def _read_body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        del self.headers["Transfer-Encoding"]
        return body

    def _answer(
        self, status: int, headers: list[tuple[str, str]], content: bytes, is_cut: bool = False
    ) -> None:
        self.send_response_only(status)
        for key, value in headers:
            if not re.fullmatch("(?i)transfer-encoding|connection|content-length", key):
                self.send_header(key, value)
        length = len(content)
        if self.command == "HEAD":  # tells the length of what a GET would bring
            length = int(dict(headers).get("Content-Length", length))
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if is_cut else content)
        if is_cut:
            self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(2)

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


def first(count: int, kind: str, method: str = "", path: str = "") -> Plan:
    """Return a plan that fails the first requests of a method whose path matches."""
    left = count

    def plan(asked_method: str, asked_path: str, number: int) -> str | None:
        nonlocal left
        if left and asked_method.startswith(method) and re.search(path, asked_path):
            left -= 1
            return kind
        return None

    return plan


@contextlib.contextmanager
def flaky_proxy(target: str) -> Iterator[FlakyProxy]:
    proxy = FlakyProxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
