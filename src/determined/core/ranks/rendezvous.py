"""How the ranks of one job find each other: one listens, the others connect.

On one machine the chief listens on a free loopback port and writes its address and a random secret
to a file that only this user can read, named after the job. Ranks of one launcher know that name,
so no port is fixed and jobs never collide. Ranks that were started one by one (from two shells,
behind `wrap_rank`) have only numbers in common: they use a known port of the loopback interface,
with a secret of this user. Across machines there is no such file: the chief listens at a known port
of its own address, and the job's secret should be in every rank's environment.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import secrets
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from determined._info import job_secret
from determined.core.ranks.channel import Connection, UntrustedPeerError
from determined.core.ranks.listeners import (
    LOOPBACK,
    AddMember,
    Deadline,
    Listener,
    accept_members,
    connect,
    listen,
)
from determined.errors import DistributedError

logger = logging.getLogger("determined.core")

DEFAULT_PUB_PORT = 12360
PORTS_TO_TRY = 16
# How long ranks try to find each other without a known port, before that is tried.
_PORTLESS_SECONDS = 1.0
# How long a chief waits for such ranks if its known port is taken.
_PORT_TAKEN_SECONDS = 20.0
_LAUNCHER_VARIABLES = (
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "HOROVOD_GLOO_RENDEZVOUS_PORT",
    "OMPI_MCA_orte_hnp_uri",
    "PMIX_NAMESPACE",
)


@dataclass(frozen=True)
class Rendezvous:
    """How one job's ranks find each other.

    Args:
        chief_ip: the chief's address, or None when all ranks are on this machine.
        ports: the known ports, best first.
    """

    rank: int
    size: int
    chief_ip: str | None
    ports: tuple[int, ...]
    timeout_seconds: float
    secret: str | None = field(default_factory=job_secret, repr=False)

    @property
    def is_launched(self) -> bool:
        return any(os.environ.get(name) for name in _LAUNCHER_VARIABLES)

    @property
    def is_anonymous(self) -> bool:
        """Whether ranks of two jobs with equal numbers are indistinguishable."""
        return self.secret is None and not self.is_launched

    def connect(self, add: AddMember, missing: Callable[[], list[int]]) -> None:
        """Return when this rank is connected: the chief to all, a worker to the chief."""
        if self.rank != 0:
            add(0, self._join())
        elif self.chief_ip is not None:
            with listen(self.chief_ip, self._known_ports()) as listener:
                deadline = Deadline(self.timeout_seconds)
                accept_members(
                    [Listener(listener, self._known_key())], add, missing, deadline, self._advice()
                )
        else:
            self._host_here(add, missing)

    def _host_here(self, add: AddMember, missing: Callable[[], list[int]]) -> None:
        deadline, began, key = Deadline(self.timeout_seconds), time.monotonic(), _random_key()
        port_taken: DistributedError | None = None

        def give_up() -> None:
            seconds = min(_PORT_TAKEN_SECONDS, self.timeout_seconds)
            if port_taken is not None and time.monotonic() - began >= seconds:
                raise port_taken

        with contextlib.ExitStack() as stack:
            hidden = stack.enter_context(listen(LOOPBACK, [0]))
            listeners = [Listener(hidden, key)]
            if not self.is_launched:
                try:
                    known = stack.enter_context(listen(LOOPBACK, self._known_ports()))
                    listeners.append(Listener(known, self._known_key()))
                except DistributedError as error:
                    port_taken = error  # but ranks that do not need it may still connect
            entry = {"port": hidden.getsockname()[1], "key": key.hex()}
            stack.enter_context(_published(self._names(), entry))
            accept_members(listeners, add, missing, deadline, self._advice(), give_up)

    def _join(self) -> Connection:
        deadline, began = Deadline(self.timeout_seconds), time.monotonic()
        pause = 0.002
        while True:
            failures: list[str] = []
            for host, port, key in self._candidates(time.monotonic() - began):
                try:
                    return connect(host, port, key, self.rank)
                except (OSError, EOFError, UntrustedPeerError) as error:
                    failures.append(f"{host}:{port}: {error or type(error).__name__}")
            news = "; ".join(failures) or "it has not published its address"
            if deadline.has_passed:
                raise DistributedError(
                    f"rank {self.rank} did not find the chief within {self.timeout_seconds:g} s "
                    f"({news}). {self._advice()}"
                )
            deadline.remind(
                f"rank {self.rank} is still waiting for the chief, rank 0 ({news}). "
                f"{self._advice()}"
            )
            time.sleep(pause)
            pause = min(pause * 1.5, 0.25)

    def _candidates(self, waited_seconds: float) -> Iterator[tuple[str, int, bytes]]:
        if self.chief_ip is None:
            for name in self._names():
                with contextlib.suppress(OSError, ValueError, KeyError):  # not there, or incomplete
                    entry = json.loads((_private_directory() / name).read_text())
                    yield LOOPBACK, int(entry["port"]), bytes.fromhex(entry["key"])
            if self.is_launched or waited_seconds < _PORTLESS_SECONDS:
                return
        for port in self._known_ports():
            yield self.chief_ip or LOOPBACK, port, self._known_key()

    def _names(self) -> list[str]:
        """Name this job, so that ranks of two jobs of one user do not connect.

        A launcher's variables name it, or a secret. Failing both, ranks may be threads of this
        process or children of one parent.
        """
        common = (self.size, self.ports)
        if not self.is_anonymous:
            known = [os.environ.get(name) for name in _LAUNCHER_VARIABLES]
            return [_digest("job", self.secret, *known, *common)]
        threads = _digest("threads of", os.getpid(), *common)
        if threading.current_thread() is not threading.main_thread():
            return [threads]
        return [_digest("children of", os.getppid(), *common), threads]

    def _known_ports(self) -> tuple[int, ...]:
        # With several ports, ranks of two equal jobs could connect to each other's chief.
        return self.ports[:1] if self.is_anonymous else self.ports

    def _known_key(self) -> bytes:
        if self.chief_ip is None:
            secret = self.secret or _secret_of_this_user()
            return bytes.fromhex(_digest("key", secret, self.size))
        if not self.secret and self.rank == 0:
            logger.warning(
                "DET_COMM_SECRET is not set: anyone who can reach %s could impersonate a rank of "
                "this job. Set it to the same random text on every machine.",
                self.chief_ip,
            )
        # Without MASTER_ADDR, which machines may spell differently.
        attempt = [os.environ.get(name) for name in ("MASTER_PORT", "TORCHELASTIC_RUN_ID")]
        return bytes.fromhex(_digest("key", self.secret, *attempt, self.size))

    def _advice(self) -> str:
        if self.chief_ip is None and self.is_launched:
            return (
                "Did all ranks start? Check their output. If no launcher started them, "
                "MASTER_ADDR, MASTER_PORT and DET_COMM_SECRET must be the same for all of them."
            )
        ports = ", ".join(map(str, self._known_ports()[:3]))
        ports += ", ..." if len(self._known_ports()) > 3 else ""
        start = (
            f"They connect at {self.chief_ip or LOOPBACK}, port {ports}: start each of the "
            f"{self.size} ranks with the same `size`, `pub_port` (or "
            "INTER_TRAIN_PROCESS_COMM_PORT_1) and DET_COMM_SECRET (if any)"
        )
        if self.chief_ip is None:
            return f"{start}, or all with one launcher: torchrun --nproc_per_node {self.size}."
        return (
            f"{start}; check that {self.chief_ip} is the chief's address and that the port is open "
            "between the machines."
        )


@contextlib.contextmanager
def _published(names: list[str], entry: dict[str, Any]) -> Iterator[None]:
    """Let workers read `entry` under each name; remove it afterwards."""
    text = json.dumps(entry)
    paths = [_private_directory() / name for name in names]
    for path in paths:
        _draft(path, text).replace(path)
    try:
        yield
    finally:
        for path in paths:
            with contextlib.suppress(OSError):
                if path.read_text() == text:  # else another job of that name came meanwhile
                    path.unlink()


def _secret_of_this_user() -> str:
    """Return a secret that this user's processes on this machine share."""
    path = _private_directory() / "secret"
    if not path.exists():
        draft = _draft(path, secrets.token_hex(32))
        with contextlib.suppress(FileExistsError):  # another rank was faster
            path.hardlink_to(draft)
        draft.unlink()
    return path.read_text()


def _draft(path: Path, text: str) -> Path:
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    draft.touch(mode=0o600)
    draft.write_text(text)
    return draft


def _private_directory() -> Path:
    """Return a directory that only this user can enter; refuse one that others prepared."""
    path = Path(tempfile.gettempdir()) / f"determined-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise DistributedError(
            f"{path} must be your own directory with mode 0700: ranks store the job's secret "
            "there. Remove it, or point TMPDIR elsewhere."
        )
    return path


def _random_key() -> bytes:
    return secrets.token_bytes(32)


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps([str(part) for part in parts]).encode()).hexdigest()
