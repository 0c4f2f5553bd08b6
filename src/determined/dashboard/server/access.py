"""Access control: the one place that checks hosts, cookies, tokens, origins and sizes.

A browser presents the token of the printed address once and gets a cookie for it. A client with
neither sees nothing. Actions also need a header that a page of another site cannot know. `Host`
must be a name of this machine or an IP address, so that no other domain can be pointed at us.
"""

from __future__ import annotations

import base64
import hashlib
import html
import ipaddress
import secrets
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from determined.dashboard.endpoints.endpoints import ApiError, problem
from determined.dashboard.server.token import derive, is_same

LONGEST_QUERY = 16_000
LONGEST_PATH = 2000
LARGEST_HEAD = 32_000
LARGEST_BODY = 1 << 20
CSRF_HEADER = "x-det-token"
_SAFE = ("GET", "HEAD")
_METHODS = (*_SAFE, "POST", "PATCH")

_LOGIN_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:34em;margin:4em auto;padding:0 1em;"
    "color-scheme:light dark}input{font:inherit;width:100%;box-sizing:border-box;margin:.5em 0}"
)
_ONWARD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Dashboard</title>
<meta http-equiv="refresh" content="0;url=PATH"><p><a href="PATH">Continue</a></p></html>
"""
_LOGIN = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>Dashboard</title>
<style>STYLE</style>
<h1>HEAD</h1><p>Run <code>det dashboard</code> in a terminal of this machine and open the address
that it prints: it ends in <code>?token=...</code>, and works for as long as the dashboard has the
same home. Or paste the token, which is in the file <code>dashboard.token</code> of the home
(<code>DET_HOME</code>).</p><form action="/" method="get"><label>Token <input name="token"
type="password" autocomplete="off" required></label><button>Open</button></form></html>
""".replace("STYLE", _LOGIN_STYLE)
_NO_TOKEN = "This browser is not signed in"
_WRONG_TOKEN = "This token is not valid for this dashboard"


def _digest(text: str) -> str:
    """The hash by which the content security policy allows one inline style, and no other."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        f"style-src 'self' 'sha256-{_digest(_LOGIN_STYLE)}'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "font-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "form-action 'self'",
    )
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True)
class Access:
    """Decides which requests are let in.

    Attributes:
        token: the secret of the home.
        names: the host names that a browser may use, besides IP addresses; lower case.
        label: distinguishes the cookies of several homes on one machine.
        own_name: a host name that no other server has, to which browsers are sent on with their
            token: they send cookies to all ports of a host. Empty if other machines may connect.
    """

    token: str = field(repr=False)
    names: frozenset[str] = frozenset({"localhost"})
    label: str = ""
    own_name: str = ""
    _one_time_tokens: set[str] = field(default_factory=set, repr=False)

    def make_one_time_token(self) -> str:
        """A one-time token: other users can see the command line that started a browser."""
        token = secrets.token_urlsafe(32)
        self._one_time_tokens.add(token)
        return token

    @property
    def cookie_name(self) -> str:
        return f"det_dashboard_{self.label}" if self.label else "det_dashboard"

    @property
    def cookie(self) -> str:
        """The cookie that a browser keeps."""
        return derive(self.token, "cookie")

    @property
    def csrf(self) -> str:
        """The value that actions must send."""
        return derive(self.cookie, "verbs")

    def knows_host(self, header: str | None) -> bool:
        """Whether a Host header names this machine; IP addresses cannot be redirected by DNS."""
        name = _host_name(header or "")
        if not name:
            return False
        if name.rstrip(".").lower() in self.names:
            return True
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True

    def knows_cookie(self, header: str | None) -> bool:
        """Whether a Cookie header holds ours."""
        try:
            found = SimpleCookie(header or "").get(self.cookie_name)
        except CookieError:
            return False
        return found is not None and is_same(found.value, self.cookie)

    def knows_token(self, token: str) -> bool:
        """Whether a token is ours, or is an unused one-time token."""
        if token in self._one_time_tokens:
            self._one_time_tokens.remove(token)
            return True
        return is_same(token, self.token)

    def refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """Why a request is rejected; None if it is let in."""
        method = scope["method"]
        if not self.knows_host(headers.get("host")):
            return problem(
                403,
                "This host name is not one of the dashboard's.",
                "Open the address that `det dashboard` printed.",
            )
        if len(scope["query_string"]) > LONGEST_QUERY or len(scope["path"]) > LONGEST_PATH:
            return problem(
                414, f"A path has {LONGEST_PATH} characters at most, a query {LONGEST_QUERY}."
            )
        if sum(len(name) + len(value) for name, value in headers.raw) > LARGEST_HEAD:
            return problem(431, f"The headers are larger than {LARGEST_HEAD} bytes.")
        if method not in _METHODS:
            refused = problem(405, f"{method[:20]} is not allowed.")
            refused.headers["Allow"] = ", ".join(_METHODS)
            return refused
        if not self.knows_cookie(headers.get("cookie")):
            return _unauthorized(scope["path"])
        if method not in _SAFE:
            return self._refused_verb(headers)
        if headers.get("sec-fetch-site") == "cross-site" and scope["path"].startswith("/api/"):
            return problem(403, "This request came from another site.")
        return None

    def _refused_verb(self, headers: Headers) -> Response | None:
        origin = headers.get("origin")
        if origin is not None and urlsplit_host(origin) != headers.get("host", "").lower():
            return problem(403, "This request came from another site.")
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return problem(403, "This request came from another site.")
        if not is_same(headers.get(CSRF_HEADER, ""), self.csrf):
            return problem(
                403,
                f"A change needs the header {CSRF_HEADER}.",
                "GET /api/session has its value as `csrf`.",
            )
        return None

    def welcome(self, scope: Scope, headers: Headers) -> Response | None:
        """The response to an address with a token: a cookie, and the address without the token."""
        if scope["method"] not in _SAFE or b"token=" not in scope["query_string"]:
            return None
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        token = next((value for name, value in pairs if name == "token"), None)
        if token is None or scope["path"].startswith(("/api/", "//")):
            return None
        if self._is_browser_elsewhere(headers):
            _, _, port = headers["host"].rpartition(":")
            query = scope["query_string"].decode("latin-1")
            onward = f"http://{self.own_name}:{port}{_raw_path(scope)}?{query}"
            return RedirectResponse(onward, 303, {"Cache-Control": "no-store"})
        if not self.knows_token(token):
            return _unauthorized(scope["path"], _WRONG_TOKEN)
        rest = urlencode([pair for pair in pairs if pair[0] != "token"])
        path = _raw_path(scope)
        target = f"{path}?{rest}" if rest else path
        answer: Response = RedirectResponse(target, status_code=303)
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            # Followed from another site, such as a terminal in a browser: the cookie would not be
            # sent along with a redirect, but is when a page of ours leads on.
            answer = HTMLResponse(_ONWARD.replace("PATH", html.escape(target, quote=True)))
        answer.set_cookie(self.cookie_name, self.cookie, httponly=True, samesite="strict", path="/")
        answer.headers["Cache-Control"] = "no-store"
        return answer

    def _is_browser_elsewhere(self, headers: Headers) -> bool:
        """Whether a browser asks for a page under a name that other servers have as well."""
        host = headers.get("host", "").lower()
        is_shared = bool(self.own_name) and host.rpartition(":")[0] != self.own_name
        return is_shared and ":" in host and headers.get("sec-fetch-mode") == "navigate"


def _raw_path(scope: Scope) -> str:
    return str(scope.get("raw_path", b"/").decode("latin-1").partition("?")[0])


def _host_name(header: str) -> str:
    if header.startswith("["):
        name, bracket, rest = header.partition("]")
        return name + bracket if bracket and (not rest or rest.startswith(":")) else ""
    name, _, port = header.partition(":")
    return name if not port or port.isdigit() else ""


def urlsplit_host(origin: str) -> str:
    """The host and port of an origin; empty if it is not valid."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _unauthorized(path: str, head: str = _NO_TOKEN) -> Response:
    if path.startswith(("/api/", "/static/")):
        return problem(
            401,
            "This browser is not signed in.",
            "Run `det dashboard` and open the address that it prints.",
        )
    return HTMLResponse(_LOGIN.replace("HEAD", head), 401)


class Guard:
    """Wraps an application: every request is checked, every response gets its headers."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # no web sockets here
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = Headers(scope=scope)
        answer = None
        if self._access.knows_host(headers.get("host")) and len(scope["query_string"]) <= (
            LONGEST_QUERY
        ):
            answer = self._access.welcome(scope, headers)
        answer = answer or self._access.refusal(scope, headers) or _too_large(headers)
        if answer is not None:
            await answer(scope, receive, _with_headers(send))
            return
        await self._app(scope, receive, _with_headers(send))


def _too_large(headers: Headers) -> Response | None:
    length = headers.get("content-length", "0")
    if not length.isdigit():
        return problem(400, "Content-Length is not a number.")
    if int(length) > LARGEST_BODY:
        return problem(413, f"The body is larger than {LARGEST_BODY} bytes.")
    return None


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return send_with_headers


async def read_body(receive: Receive) -> bytes:
    """The body of a request; an ApiError if it is too large or does not arrive whole."""
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ApiError(400, "The body is not complete.")
        parts.append(message.get("body", b""))
        if sum(map(len, parts)) > LARGEST_BODY:
            raise ApiError(413, f"The body is larger than {LARGEST_BODY} bytes.")
        if not message.get("more_body", False):
            return b"".join(parts)
