"""TensorBoard behind access control: `python -m determined.platform.tensorboards.process FLAGS`.

TensorBoard itself answers everybody who reaches its port. Here each request passes a guard first,
in the same process, so there is no other way to its application. It has an origin of its own,
`<name>.localhost`, because browsers send cookies to all ports of a host name.
"""

from __future__ import annotations

import hmac
import os
import sys
from collections.abc import Callable, Iterable
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode

NAME_VARIABLE = "DET_TENSORBOARD_NAME"
HOST_VARIABLE = "DET_TENSORBOARD_HOST"
TOKEN_VARIABLE = "DET_TENSORBOARD_TOKEN"
ONCE_VARIABLE = "DET_TENSORBOARD_TOKEN_ONCE"
"""Valid once: other users can see the command line that opens a browser."""
_COOKIE = "det_tensorboard"
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_REFUSED = (
    "This TensorBoard is for the user who started it: open the address that was printed, which "
    "ends in ?token=...\n"
)

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]


class Guard:
    """Lets requests through to an application that come from whoever has the token.

    Args:
        application: A WSGI application.
        name: The host name is `<name>.localhost`.
        host: Another host name or address that it may be reached by; empty for none.
        token: What the first address of a browser has; it gets a cookie for it.
        once: A second token, which is valid once.
    """

    def __init__(
        self, application: Application, name: str, host: str, token: str, once: str = ""
    ) -> None:
        self._application = application
        self._own = f"{name}.localhost"
        self._hosts = {self._own, host.lower()} - {"", *_LOOPBACK}
        self._token = token
        self._once = once
        self._cookie = hmac.new(token.encode(), b"cookie", "sha256").hexdigest()

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        host, _, port = environ.get("HTTP_HOST", "").lower().rpartition(":")
        if not port.isdigit():
            host, port = environ.get("HTTP_HOST", "").lower(), ""
        if host not in self._hosts and host not in _LOOPBACK:
            return _refuse(start_response)
        pairs = parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True)
        given = next((value for key, value in pairs if key == "token"), None)
        if given is not None and host in _LOOPBACK:  # cookies belong to a name of our own
            return _redirect(start_response, f"//{self._own}:{port}{_target(environ, pairs)}")
        if given is not None and self._knows(given):
            rest = [pair for pair in pairs if pair[0] != "token"]
            cookie = f"{_COOKIE}={self._cookie}; HttpOnly; SameSite=Lax; Path=/"
            return _redirect(start_response, _target(environ, rest), ("Set-Cookie", cookie))
        if not self._is_signed_in(environ):
            return _refuse(start_response)
        return self._application(environ, start_response)

    def _knows(self, token: str) -> bool:
        if self._once and _is_same(token, self._once):
            self._once = ""
            return True
        return _is_same(token, self._token)

    def _is_signed_in(self, environ: Environ) -> bool:
        scheme, _, token = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
        if scheme.lower() == "bearer" and _is_same(token.strip(), self._token):
            return True
        try:
            found = SimpleCookie(environ.get("HTTP_COOKIE", "")).get(_COOKIE)
        except CookieError:
            return False
        return found is not None and _is_same(found.value, self._cookie)


def _is_same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())


def _target(environ: Environ, pairs: list[tuple[str, str]]) -> str:
    path = "/" + environ.get("PATH_INFO", "/").lstrip("/")  # never another host
    return f"{path}?{urlencode(pairs)}" if pairs else path


def _redirect(
    start_response: StartResponse, target: str, *headers: tuple[str, str]
) -> Iterable[bytes]:
    fixed = [("Location", target), ("Cache-Control", "no-store"), ("Content-Length", "0")]
    start_response("303 See Other", [*fixed, *headers])
    return [b""]


def _refuse(start_response: StartResponse) -> Iterable[bytes]:
    body = _REFUSED.encode()
    kind = ("Content-Type", "text/plain; charset=utf-8")
    start_response("403 Forbidden", [kind, ("Content-Length", str(len(body)))])
    return [body]


def main() -> None:
    """Run TensorBoard with the flags of the command line, and the guard from the environment."""
    from tensorboard import assets, default, program

    names = (NAME_VARIABLE, HOST_VARIABLE, TOKEN_VARIABLE, ONCE_VARIABLE)
    settings = [os.environ.pop(name) for name in names]

    class GuardedServer(program.WerkzeugServer):  # type: ignore[misc]  # tensorboard has no types
        def __init__(self, wsgi_app: Application, flags: Any) -> None:
            super().__init__(Guard(wsgi_app, *settings), flags)

    board = program.TensorBoard(
        default.get_plugins(), assets.get_default_assets_zip_provider(), GuardedServer
    )
    # Its fast loader is a server of its own, with a port that anyone can use.
    board.configure([*sys.argv, "--load_fast", "false"])
    sys.exit(board.main())


if __name__ == "__main__":
    main()
