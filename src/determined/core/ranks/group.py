"""Collectives among the ranks of one group, through one of them: a star of authenticated sockets.

Sockets rather than torch's store or gloo: ranks may be threads of one process, payloads are any
picklable object, and the kernel reports at once when a peer's process ended. One thread per
connection reads, so a failure arrives while this rank waits, computes or does nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import pickle
import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from determined.core.ranks.channel import Connection, Frame, UntrustedPeerError
from determined.errors import DistributedError

_NO_PAYLOAD = b""
_LONGEST_TEXT = 4000  # of another rank's error: a notice must fit into a socket's buffer
_CENTRE = 0  # the member that all others are connected to


class Kind(IntEnum):
    DATA = 1
    FAILURE = 2
    GOODBYE = 3
    NOTE = 4
    MESSAGE = 5


class Operation(IntEnum):
    GATHER = 1
    ALLGATHER = 2
    BROADCAST = 3
    GATHER_LOCAL = 4
    ALLGATHER_LOCAL = 5
    BROADCAST_LOCAL = 6

    @property
    def title(self) -> str:
        return self.name.lower()


class PeerFailedError(DistributedError):
    """A rank of this job failed or died; `rank` says which. Raised by the others."""

    def __init__(self, message: str, rank: int) -> None:
        super().__init__(message)
        self.rank = rank

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.rank)


class OutOfStepError(PeerFailedError, RuntimeError):
    """Ranks called different collectives, or the same ones in another order."""


@dataclass(frozen=True)
class Failure:
    """What ended the job's collectives: the rank it began with, and what happened there."""

    rank: int
    message: str
    out_of_step: bool = False

    @classmethod
    def from_exception(cls, rank: int, error: BaseException) -> Failure:
        text = "".join(traceback.format_exception_only(error)).strip()[:_LONGEST_TEXT]
        frames = traceback.extract_tb(error.__traceback__)
        where = f" (at {frames[-1].filename}:{frames[-1].lineno})" if frames else ""
        return cls(rank, f"rank {rank} failed: {text}{where}")

    def as_error(self) -> PeerFailedError:
        return (OutOfStepError if self.out_of_step else PeerFailedError)(self.message, self.rank)


class SharedFailure:
    """The first failure that this rank learned of, shared by all its groups and passed on."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.failure: Failure | None = None
        self._first: Failure | None = None
        self._listeners: list[Connection] = []

    def add_listener(self, connection: Connection) -> None:
        with self.changed:
            self._listeners.append(connection)
            failure = self._first
        if failure is not None:
            connection.try_send(Kind.FAILURE, pickle.dumps(failure))

    def report(self, failure: Failure, source: Connection | None = None) -> None:
        """Keep the failure if it is the first, and tell all but the one that it came from."""
        with self.changed:
            if self._first is not None:
                return
            self._first = failure
            others = [connection for connection in self._listeners if connection is not source]
        payload = pickle.dumps(failure)
        for connection in others:
            connection.try_send(Kind.FAILURE, payload)
        # Only now: a thread that waits for it may end the process before the others are told.
        with self.changed:
            self.failure = failure
            self.changed.notify_all()


class Group:
    """This rank's part in a group of `len(ranks)` members; member 0 is the centre of the star.

    Args:
        ranks: the job-wide rank of each member, for messages.
        member: this rank's place in `ranks`.
    """

    def __init__(
        self,
        ranks: Sequence[int],
        member: int,
        shared_failure: SharedFailure,
        timeout_seconds: float,
    ) -> None:
        self._ranks = list(ranks)
        self._member = member
        self._shared_failure = shared_failure
        # The centre knows which rank is silent: on a timeout the others let it report first.
        grace_seconds = min(5.0, timeout_seconds * 0.1) if member != _CENTRE else 0.0
        self._timeout_seconds = timeout_seconds + grace_seconds
        self._serial = 0
        self._connections: dict[int, Connection] = {}
        self._inboxes: dict[int, deque[Frame]] = {}
        self._left: set[int] = set()
        self._closing = False
        self.last_entered = "none"
        self._on_note: Callable[[int, bytes | bytearray], None] = lambda member, note: None
        self._on_message: Callable[[int, bytes | bytearray], None] = lambda member, message: None

    def add(self, member: int, connection: Connection) -> None:
        """Add a member's connection and listen to it. The centre adds all, others the centre."""
        with self._shared_failure.changed:
            if member in self._connections or not 0 <= member < len(self._ranks):
                raise UntrustedPeerError(
                    f"rank {member} is already taken, or not a rank of this job"
                )
            self._connections[member] = connection
            self._inboxes[member] = deque()
            self._shared_failure.changed.notify_all()
        threading.Thread(
            target=self._listen,
            args=(member, connection),
            name=f"determined-rank-{self._ranks[member]}",
            daemon=True,
        ).start()

    def missing(self) -> list[int]:
        """Return the ranks that the centre still waits for; raise what went wrong meanwhile."""
        if self._shared_failure.failure is not None:
            raise self._shared_failure.failure.as_error()
        return [
            rank
            for member, rank in enumerate(self._ranks)
            if member != _CENTRE and member not in self._connections
        ]

    def gather(self, operation: Operation, value: Any) -> list[Any] | None:
        payload = self._enter(operation, value)
        if self._member != _CENTRE:
            self._send(_CENTRE, operation, payload)
            self._take(_CENTRE, operation)  # the centre has all of them
            return None
        payloads = self._take_all(operation)
        self._send_to_all(operation, _NO_PAYLOAD)
        return self._unpickle(payloads, value)

    def allgather(self, operation: Operation, value: Any) -> list[Any]:
        payload = self._enter(operation, value)
        if self._member != _CENTRE:
            self._send(_CENTRE, operation, payload)
            return self._unpickle(pickle.loads(self._take(_CENTRE, operation)), value)
        payloads = self._take_all(operation)
        payloads[_CENTRE] = payload
        self._send_to_all(operation, pickle.dumps(payloads, protocol=5))
        return self._unpickle(payloads, value)

    def broadcast(self, operation: Operation, value: Any) -> Any:
        if self._member != _CENTRE:
            self._enter(operation, None)
            return pickle.loads(self._take(_CENTRE, operation))
        self._send_to_all(operation, self._enter(operation, value))
        return value

    def handle_notes(self, handler: Callable[[int, bytes | bytearray], None]) -> None:
        """Call `handler` with each note and its sender, in the thread that listens to it."""
        self._on_note = handler

    def handle_messages(self, handler: Callable[[int, bytes | bytearray], None]) -> None:
        """Call `handler` with each message and its sender, in the thread that listens to it."""
        self._on_message = handler

    def send_note(self, member: int, note: bytes) -> None:
        """Send a note to the other side's handler; this is not a collective."""
        with contextlib.suppress(OSError):  # the thread that listens to that member notices its end
            digest = hashlib.sha256(note).digest()
            self._connections[member].send(Kind.NOTE, 0, 0, note, digest)

    def send_message(self, member: int, message: bytes) -> None:
        """Send a message to the other side's handler; for threads beside the main one."""
        with contextlib.suppress(OSError):
            digest = hashlib.sha256(message).digest()
            self._connections[member].send(Kind.MESSAGE, 0, 0, message, digest)

    def wait_for_messages(self, ready: Callable[[], bool]) -> None:
        """Wait until messages have made it `ready`; the main thread may be in a collective."""
        self._wait_for(lambda: ready() or bool(self._left))
        if not ready():
            raise self._ended(min(self._left))

    def wait_for_notes(self, what: str, ready: Callable[[], bool]) -> None:
        """Wait until notes have made it `ready`, which `wake` checks again."""
        if ready():
            return
        self.last_entered = what
        self._wait_for(lambda: ready() or bool(self._left))
        if not ready():
            raise self._ended(min(self._left))

    def wake(self) -> None:
        """Let waiting threads check again."""
        with self._shared_failure.changed:
            self._shared_failure.changed.notify_all()

    def close(self) -> None:
        """Say goodbye and close the connections. Collectives that need this rank then fail."""
        self._closing = True
        for connection in self._connections.values():
            connection.try_send(Kind.GOODBYE, _NO_PAYLOAD)
            connection.close()

    def forget(self) -> None:
        """Close a forked child's copies of the sockets, or its parent's death would go unseen."""
        self._closing = True
        for connection in self._connections.values():
            connection.forget()

    def _enter(self, operation: Operation, value: Any) -> bytes:
        # Pickled first: a value that cannot be sent fails here alone and leaves the ranks in step.
        payload = pickle.dumps(value, protocol=5)
        if self._shared_failure.failure is not None:
            raise self._shared_failure.failure.as_error()
        self._serial += 1
        self.last_entered = f"{operation.title} (collective {self._serial})"
        return payload

    def _send_to_all(self, operation: Operation, payload: bytes) -> None:
        digest = hashlib.sha256(payload).digest()
        for member in range(1, len(self._ranks)):
            self._send(member, operation, payload, digest)

    def _send(
        self, member: int, operation: Operation, payload: bytes, digest: bytes | None = None
    ) -> None:
        connection = self._connections[member]
        digest = hashlib.sha256(payload).digest() if digest is None else digest
        try:
            connection.send(Kind.DATA, operation, self._serial, payload, digest)
        except BlockingIOError:
            raise self._timed_out([self._ranks[member]], "did not read what was sent") from None
        except OSError:
            # The listening thread gets the same error, after it has read what came before.
            self._wait_for(lambda: member in self._left)
            raise self._ended(member) from None

    def _take_all(self, operation: Operation) -> list[bytes | bytearray]:
        others = range(1, len(self._ranks))
        self._wait_for(
            lambda: (
                all(self._inboxes[m] for m in others)
                or any(m in self._left and not self._inboxes[m] for m in others)
            )
        )
        return [_NO_PAYLOAD, *(self._take(member, operation) for member in others)]

    def _take(self, member: int, operation: Operation) -> bytes | bytearray:
        inbox = self._inboxes[member]
        self._wait_for(lambda: bool(inbox) or member in self._left)
        if not inbox:
            raise self._ended(member)
        frame = inbox.popleft()
        if (frame.operation, frame.serial) != (operation, self._serial):
            failure = Failure(
                self._ranks[member],
                f"ranks are out of step: rank {self._ranks[member]} called "
                f"{Operation(frame.operation).title} as its collective {frame.serial} while rank "
                f"{self._ranks[self._member]} called {operation.title} as its collective "
                f"{self._serial}. Every rank must call the same collectives in the same order.",
                out_of_step=True,
            )
            self._shared_failure.report(failure)
            raise failure.as_error()
        return frame.payload

    def _wait_for(self, ready: Callable[[], bool]) -> None:
        """Wait until `ready`; raise the failure that comes first.

        What has arrived counts even if its sender has died since: the collective was complete.
        """
        shared_failure = self._shared_failure
        with shared_failure.changed:
            shared_failure.changed.wait_for(
                lambda: ready() or shared_failure.failure is not None, self._timeout_seconds
            )
            is_ready, failure = ready(), shared_failure.failure
        if is_ready:
            return
        if failure is not None:
            raise failure.as_error()
        silent = [self._ranks[member] for member, inbox in self._inboxes.items() if not inbox]
        raise self._timed_out(silent or [self._ranks[m] for m in self._inboxes], "sent nothing")

    def _timed_out(self, ranks: list[int], what: str) -> PeerFailedError:
        me = self._ranks[self._member]
        names = ", ".join(str(rank) for rank in ranks)
        failure = Failure(
            ranks[0],
            f"{self.last_entered} timed out on rank {me} after {self._timeout_seconds:g} s: "
            f"rank {names} {what}. It may be stuck or slower than the others; "
            "DET_COLLECTIVE_TIMEOUT sets the seconds to wait.",
        )
        self._shared_failure.report(failure)
        return failure.as_error()

    def _ended(self, member: int) -> PeerFailedError:
        if self._shared_failure.failure is not None:
            return self._shared_failure.failure.as_error()
        rank = self._ranks[member]
        return PeerFailedError(
            f"rank {rank} has closed its distributed context, but rank "
            f"{self._ranks[self._member]} waits for it in {self.last_entered}.",
            rank,
        )

    def _unpickle(self, payloads: list[bytes | bytearray], own: Any) -> list[Any]:
        return [
            own if member == self._member else pickle.loads(payload)
            for member, payload in enumerate(payloads)
        ]

    def _listen(self, member: int, connection: Connection) -> None:
        """Dispatch what one member sends, until it leaves; runs in its own thread."""
        rank = self._ranks[member]
        try:
            while True:
                frame = connection.receive()
                if frame.kind == Kind.GOODBYE:
                    break
                if frame.kind == Kind.FAILURE:
                    self._shared_failure.report(pickle.loads(frame.payload), source=connection)
                    continue
                if frame.kind == Kind.NOTE:
                    self._on_note(member, frame.payload)
                    continue
                if frame.kind == Kind.MESSAGE:
                    self._on_message(member, frame.payload)
                    continue
                with self._shared_failure.changed:
                    self._inboxes[member].append(frame)
                    self._shared_failure.changed.notify_all()
        except UntrustedPeerError as error:
            self._shared_failure.report(Failure(rank, f"connection to rank {rank}: {error}."))
        except (EOFError, OSError):
            if not self._closing:
                message = (
                    f"rank {rank} died: its process ended or its machine was lost. "
                    f"Its own output shows why."
                )
                self._shared_failure.report(Failure(rank, message), source=connection)
        with self._shared_failure.changed:
            self._left.add(member)
            self._shared_failure.changed.notify_all()
