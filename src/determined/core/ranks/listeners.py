"""Where the chief accepts the other ranks: listening sockets, each with its own key."""

from __future__ import annotations

import contextlib
import errno
import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from determined.core.ranks.channel import (
    Connection,
    UntrustedPeerError,
    handshake_with_chief,
    handshake_with_worker,
)
from determined.errors import DistributedError

logger = logging.getLogger("determined.core")

LOOPBACK = "127.0.0.1"
_HANDSHAKE_SECONDS = 10.0
_FIRST_REMINDER_SECONDS = 10.0
_REMIND_SECONDS = 30.0

AddMember = Callable[[int, Connection], None]


@dataclass(frozen=True)
class Listener:
    """A listening socket, and the key that members must know."""

    sock: socket.socket
    key: bytes


class Deadline:
    """How long to wait for other ranks, and when to log that we wait."""

    def __init__(self, timeout_seconds: float) -> None:
        self.timeout_seconds = timeout_seconds
        now = time.monotonic()
        self._deadline = now + timeout_seconds
        self._remind_at = now + _FIRST_REMINDER_SECONDS

    @property
    def has_passed(self) -> bool:
        return time.monotonic() >= self._deadline

    def remind(self, text: str) -> None:
        """Log what is waited for, at intervals."""
        if time.monotonic() >= self._remind_at:
            logger.warning("%s", text)
            self._remind_at = time.monotonic() + _REMIND_SECONDS


def listen(host: str, ports: Sequence[int]) -> socket.socket:
    """Listen on the first free port, on the interface that `host` names."""
    try:
        address = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise DistributedError(
            f"The chief's address {host!r} cannot be resolved ({error}). Set DET_CHIEF_IP."
        ) from None
    family, ip = address[0], str(address[4][0])
    anywhere = "::" if family == socket.AF_INET6 else ""
    # /etc/hosts may map our own name to loopback, and an address may be a gateway's.
    choices = [anywhere] if is_loopback(ip) and not is_loopback(host) else [ip, anywhere]
    for choice in choices:
        for port in ports:
            listener = socket.socket(family, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((choice, port))
                listener.listen(1024)
                return listener
            except OSError as error:
                listener.close()
                if error.errno == errno.EADDRNOTAVAIL:
                    break
        else:
            break
    numbers = ", ".join(map(str, ports))
    raise DistributedError(
        f"The chief cannot listen on {host}: port {numbers} is in use by another program, maybe "
        "by another training job. Give each job its own `pub_port` (or "
        "INTER_TRAIN_PROCESS_COMM_PORT_1), the same on all its ranks, or start the ranks with "
        "torchrun."
    )


def accept_members(
    listeners: Sequence[Listener],
    add: AddMember,
    missing: Callable[[], list[int]],
    deadline: Deadline,
    advice: str,
    give_up: Callable[[], None] = lambda: None,
) -> None:
    """Accept members until none is missing. Others are rejected without delaying anyone.

    `give_up` is called repeatedly while nobody has connected, and may raise.
    """
    untrusted: list[UntrustedPeerError] = []

    def authenticate(sock: socket.socket, key: bytes) -> None:
        try:
            rank, connection = handshake_with_worker(sock, key, _HANDSHAKE_SECONDS)
        except (OSError, EOFError, UntrustedPeerError) as error:
            logger.debug("rejected a connection: %s", error)
            sock.close()
            return
        try:
            add(rank, connection)
        except UntrustedPeerError as error:  # it knows the key, but is not missing
            untrusted.append(error)
            sock.close()

    everybody = missing()
    with selectors.DefaultSelector() as selector:
        for listener in listeners:
            selector.register(listener.sock, selectors.EVENT_READ, listener.key)
        while absent := missing():
            if untrusted:
                raise DistributedError(
                    f"{untrusted[0]}. If these are two "
                    "jobs, give each its own `pub_port` or DET_COMM_SECRET."
                )
            if absent == everybody:
                give_up()
            names = ", ".join(map(str, absent))
            if deadline.has_passed:
                raise DistributedError(
                    f"rank {names} did not connect within {deadline.timeout_seconds:g} s. {advice} "
                    "DET_COLLECTIVE_TIMEOUT sets the seconds to wait."
                )
            deadline.remind(f"rank 0 is still waiting for rank {names}. {advice}")
            for ready, _ in selector.select(timeout=0.05):
                with contextlib.suppress(OSError):  # it has disconnected already
                    sock, _ = ready.fileobj.accept()  # type: ignore[union-attr]  # a socket
                    threading.Thread(
                        target=authenticate, args=(sock, ready.data), daemon=True
                    ).start()


def connect(host: str, port: int, key: bytes, rank: int) -> Connection:
    """Connect to a listening chief; OSError, EOFError, UntrustedPeerError if it is not ours."""
    sock = socket.create_connection((host, port), timeout=_HANDSHAKE_SECONDS)
    try:
        return handshake_with_chief(sock, key, rank, _HANDSHAKE_SECONDS)
    except BaseException:
        sock.close()
        raise


def is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")
