"""How the ranks of one job find each other: one listens, the others come.

On one machine the chief listens on a free loopback port and leaves address and a random secret in
a file that only this user can read; its name is the job's. No port is fixed, so jobs never collide.
Across machines there is no such file: the chief takes the first free one of a short list of known
ports on its own address, and the job's secret must be in every rank's environment.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import secrets
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from determined.core._channel import Connection, RefusedError, greet_chief, greet_worker
from determined.errors import DistributedError

logger = logging.getLogger("determined.core")

DEFAULT_PUB_PORT = 12360
PORTS_TO_TRY = 16
_LOOPBACK = "127.0.0.1"
_GREETING_SECONDS = 10.0
_REMIND_SECONDS = 30.0
_LAUNCHER_VARIABLES = (
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "HOROVOD_GLOO_RENDEZVOUS_PORT",
    "OMPI_MCA_orte_hnp_uri",
    "PMIX_NAMESPACE",
)


@dataclass(frozen=True)
class Meeting:
    """Where one job's ranks meet.

    Args:
        chief_ip: the chief's address, or None when all ranks are on this machine.
        ports: the fixed ports to use across machines, best first.
        label: tells several meetings of one job apart.
    """

    rank: int
    size: int
    chief_ip: str | None
    ports: tuple[int, ...]
    timeout_seconds: float
    label: str = ""

    def attend(
        self, add: Callable[[int, Connection], None], missing: Callable[[], list[int]]
    ) -> None:
        """Return when this rank is connected: the chief with all, a worker with the chief."""
        if self.rank == 0:
            self._host(add, missing)
        else:
            add(0, self._join())

    def _host(
        self, add: Callable[[int, Connection], None], missing: Callable[[], list[int]]
    ) -> None:
        if self.chief_ip is not None:
            with listen(self.chief_ip, self.ports) as listener:
                admit(listener, self._shared_key(), add, missing, self.timeout_seconds)
            return
        key = secrets.token_bytes(32)
        with listen(_LOOPBACK, [0]) as listener:
            entry = {"port": listener.getsockname()[1], "key": key.hex()}
            with _published(self._names(), entry):
                admit(listener, key, add, missing, self.timeout_seconds)

    def _join(self) -> Connection:
        deadline = time.monotonic() + self.timeout_seconds
        remind_at = time.monotonic() + _REMIND_SECONDS
        pause = 0.002
        while True:
            refusals: list[str] = []
            for host, port, key in self._candidates():
                try:
                    return call(host, port, key, self.rank)
                except (OSError, EOFError, RefusedError) as error:
                    refusals.append(f"{host}:{port}: {error or type(error).__name__}")
            now = time.monotonic()
            news = "; ".join(refusals) or "it has not published its address"
            if now >= deadline:
                raise DistributedError(
                    f"rank {self.rank} did not find the chief within {self.timeout_seconds:g} s "
                    f"({news}). {self._advice()}"
                )
            if now >= remind_at:
                logger.warning("rank %d still waits for the chief (%s)", self.rank, news)
                remind_at = now + _REMIND_SECONDS
            time.sleep(pause)
            pause = min(pause * 1.5, 0.25)

    def _candidates(self) -> Iterator[tuple[str, int, bytes]]:
        if self.chief_ip is not None:
            for port in self.ports:
                yield self.chief_ip, port, self._shared_key()
            return
        for name in self._names():
            with contextlib.suppress(OSError, ValueError, KeyError):  # not there, or half of it
                entry = json.loads((_private_directory() / name).read_text())
                yield _LOOPBACK, int(entry["port"]), bytes.fromhex(entry["key"])

    def _names(self) -> list[str]:
        """Name this job, so that two jobs of one user do not meet each other.

        A launcher's variables name it, or a port chosen by the caller. Failing both, ranks are
        threads of this process or children of one parent.
        """
        known = [os.environ.get(name) for name in ("DET_COMM_SECRET", *_LAUNCHER_VARIABLES)]
        common = (self.label, self.size, self.ports)
        if any(known) or self.ports[0] != DEFAULT_PUB_PORT:
            return [_digest("job", *known, *common)]
        threads = _digest("threads of", os.getpid(), *common)
        if threading.current_thread() is not threading.main_thread():
            return [threads]
        return [_digest("children of", os.getppid(), *common), threads]

    def _shared_key(self) -> bytes:
        secret = os.environ.get("DET_COMM_SECRET")
        if not secret and self.rank == 0:
            logger.warning(
                "DET_COMM_SECRET is not set: whoever reaches %s could pose as a rank of this job. "
                "Set it to the same random text on every machine.",
                self.chief_ip,
            )
        # Without MASTER_ADDR, which machines may spell differently.
        attempt = [os.environ.get(name) for name in ("MASTER_PORT", "TORCHELASTIC_RUN_ID")]
        return bytes.fromhex(_digest("key", secret, *attempt, self.size))

    def _advice(self) -> str:
        if self.chief_ip is None:
            return (
                "Start all ranks with one launcher (torchrun, determined.launch.torch_distributed) "
                "or with the same DET_COMM_SECRET."
            )
        return (
            f"Check that {self.chief_ip} is the chief's address, that one of the ports "
            f"{self.ports[0]}-{max(self.ports)} is open between the machines, and that "
            "DET_COMM_SECRET is the same on all of them."
        )


def listen(host: str, ports: tuple[int, ...] | list[int]) -> socket.socket:
    """Listen on the first free port, on the interface that `host` names."""
    try:
        address = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise DistributedError(
            f"The chief's address {host!r} cannot be resolved ({error}). Set DET_CHIEF_IP."
        ) from None
    family, ip = address[0], str(address[4][0])
    anywhere = "::" if family == socket.AF_INET6 else ""
    # Our own name may stand for loopback in /etc/hosts, and an address for a gateway before us.
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
    raise DistributedError(
        f"The chief cannot listen on {host}: ports {', '.join(map(str, ports))} are all in use. "
        "Choose another `pub_port`."
    )


def admit(
    listener: socket.socket,
    key: bytes,
    add: Callable[[int, Connection], None],
    missing: Callable[[], list[int]],
    timeout_seconds: float,
) -> None:
    """Let members in until none is missing. Strangers are turned away, and hold up nobody."""
    deadline = time.monotonic() + timeout_seconds
    remind_at = time.monotonic() + _REMIND_SECONDS
    listener.settimeout(0.05)
    while absent := missing():
        now = time.monotonic()
        names = ", ".join(map(str, absent))
        if now >= deadline:
            raise DistributedError(
                f"rank {names} did not come within {timeout_seconds:g} s. Did it start? "
                "DET_COLLECTIVE_TIMEOUT sets the seconds to wait."
            )
        if now >= remind_at:
            logger.warning("still waiting for rank %s", names)
            remind_at = now + _REMIND_SECONDS
        with contextlib.suppress(TimeoutError):
            sock, _ = listener.accept()
            threading.Thread(target=_greet, args=(sock, key, add), daemon=True).start()


def call(host: str, port: int, key: bytes, rank: int) -> Connection:
    """Connect to a listening chief; raises OSError, EOFError or RefusedError if it is not ours."""
    sock = socket.create_connection((host, port), timeout=_GREETING_SECONDS)
    try:
        return greet_chief(sock, key, rank, _GREETING_SECONDS)
    except BaseException:
        sock.close()
        raise


def is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _greet(sock: socket.socket, key: bytes, add: Callable[[int, Connection], None]) -> None:
    try:
        add(*greet_worker(sock, key, _GREETING_SECONDS))
    except (OSError, EOFError, RefusedError) as error:
        logger.debug("turned a connection away: %s", error)
        sock.close()


@contextlib.contextmanager
def _published(names: list[str], entry: dict[str, Any]) -> Iterator[None]:
    """Let workers read `entry` under each name; take it back afterwards."""
    text = json.dumps(entry)
    paths = [_private_directory() / name for name in names]
    for path in paths:
        draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        draft.touch(mode=0o600)
        draft.write_text(text)
        draft.replace(path)
    try:
        yield
    finally:
        for path in paths:
            with contextlib.suppress(OSError):
                if path.read_text() == text:  # else another job of that name came meanwhile
                    path.unlink()


def _private_directory() -> Path:
    """Return a directory that only this user can enter; refuse one that others prepared."""
    path = Path(tempfile.gettempdir()) / f"determined-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise DistributedError(
            f"{path} must be a directory of your own with mode 0700: ranks leave the job's secret "
            "there. Remove it, or point TMPDIR elsewhere."
        )
    return path


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps([str(part) for part in parts]).encode()).hexdigest()
