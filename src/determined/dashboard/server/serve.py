"""Start the server: pick a port, print the address, and run until interrupted."""

from __future__ import annotations

import errno
import hashlib
import socket
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from determined.dashboard.app import make_app
from determined.dashboard.server.access import LARGEST_HEAD, LONGEST_QUERY, Access
from determined.dashboard.server.token import load_token
from determined.errors import DeterminedError
from determined.platform.homes.home import Home
from determined.platform.service import Service

FIRST_PORT = 8090
_TRIES = 20
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_ANY = ("0.0.0.0", "::")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host address."""
    return host in _LOOPBACK or host.startswith("127.")


def make_access(home: Home, host: str) -> Access:
    """The access control of a home for a server on this host address."""
    label = hashlib.sha256(str(home.path).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    token = load_token(home.path)
    if not is_loopback(host):
        return Access(token, frozenset({"localhost", *_own_names(), host.lower()}), label)
    own_name = f"det-{label}.localhost"
    return Access(token, frozenset({"localhost", own_name}), label, own_name)


def _own_names() -> set[str]:
    name = socket.gethostname().lower()
    return {name, f"{name}.local", socket.getfqdn().lower()} - {""}


def bind(host: str, port: int | None) -> socket.socket:
    """A listening socket; without a port, the first free one from 8090 on, else any."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    ports = [port] if port is not None else [*range(FIRST_PORT, FIRST_PORT + _TRIES), 0]
    for candidate in ports:
        # Named, or asyncio does not switch off Nagle's algorithm: each answer would take 40 ms.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, candidate))
            listener.listen(128)
            return listener
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRINUSE and candidate != ports[-1]:
                continue
            raise DeterminedError(
                f"Cannot listen on {host} port {candidate}: {error.strerror or error}. Choose "
                "another with --port, or leave it out."
            ) from error
    raise AssertionError("the last port is tried or raises")


def address(host: str, port: int, token: str) -> str:
    """What to open in a browser."""
    name = "127.0.0.1" if host in ("0.0.0.0", "localhost") else "::1" if host == "::" else host
    return f"http://{f'[{name}]' if ':' in name else name}:{port}/?token={token}"


def settings(app: ASGIApp) -> uvicorn.Config:
    """The server's settings: quiet, with limits, and stopping at once on request."""
    return uvicorn.Config(
        app,
        http="h11",
        access_log=False,  # addresses may contain the token
        log_level="error",
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=1,  # open streams end with us
        limit_concurrency=512,
        h11_max_incomplete_event_size=LARGEST_HEAD + LONGEST_QUERY,
        lifespan="on",
        ws="none",
    )


def serve(home: Home, host: str, port: int | None, tell: Callable[[str, str], None]) -> None:
    """Serve a home until the process is interrupted.

    `tell` gets the address once it is open, and a one-time address to start a browser with.
    """
    access = make_access(home, host)
    listener = bind(host, port)
    config = settings(make_app(lambda: Service(home), access))
    port = listener.getsockname()[1]

    def ready() -> None:
        tell(address(host, port, access.token), address(host, port, access.make_one_time_token()))

    server = _Server(config, ready)
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:
        pass
    finally:
        listener.close()


class _Server(uvicorn.Server):
    """A server that reports when it is ready."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if not self.should_exit:
            self._ready()
