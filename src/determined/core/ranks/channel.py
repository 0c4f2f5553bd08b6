"""One authenticated connection between two ranks: framed messages over a TCP socket.

Messages are pickled, and unpickling runs code, so no message is unpickled before its MAC was
checked. Both ends prove at the start that they know the job's key; after that every frame carries
an HMAC-SHA256 under a key of this connection and direction, over its header, its number and its
payload. Strangers, replayed frames and frames of another job are all refused.
Frames are authenticated, not encrypted.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
import socket
import struct
import sys
import threading
from dataclasses import dataclass

_MAGIC = b"determined-channel-1\n"
_NONCE_BYTES = 16
_MAC_BYTES = hashlib.sha256().digest_size
_RANK = struct.Struct("!I")
_HEADER = struct.Struct("!BBQQ")  # kind, operation, serial, payload length
_COUNTER = struct.Struct("!Q")
# Below this a header and its payload share one system call; above, copying costs more than a call.
_JOIN_BELOW_BYTES = 65536


class UntrustedPeerError(Exception):
    """The other end is not a member of this job, or not the rank it claims to be."""


@dataclass(frozen=True)
class Frame:
    kind: int
    operation: int
    serial: int
    payload: bytes | bytearray


class Connection:
    """A socket whose other end has proved that it belongs to this job."""

    def __init__(self, sock: socket.socket, send_key: bytes, receive_key: bytes) -> None:
        self._sock = sock
        self._send_key = send_key
        self._receive_key = receive_key
        self._sent = 0
        self._received = 0
        self._sending = threading.Lock()

    def send(self, kind: int, operation: int, serial: int, payload: bytes, digest: bytes) -> None:
        """Send one frame; `digest` is the payload's SHA-256, so that a broadcast hashes it once."""
        header = _HEADER.pack(kind, operation, serial, len(payload))
        with self._sending:
            mac = _mac(self._send_key, self._sent, header, digest)
            self._sent += 1
            if len(payload) < _JOIN_BELOW_BYTES:
                self._sock.sendall(header + mac + payload)
            else:
                self._sock.sendall(header + mac)
                self._sock.sendall(payload)

    def try_send(self, kind: int, payload: bytes) -> None:
        """Send a short notice if the other end still reads; never wait for one that is stuck."""
        header = _HEADER.pack(kind, 0, 0, len(payload))
        if not self._sending.acquire(timeout=1):
            return
        try:
            mac = _mac(self._send_key, self._sent, header, hashlib.sha256(payload).digest())
            self._sent += 1
            self._sock.send(header + mac + payload, socket.MSG_DONTWAIT)
        except OSError:
            pass  # gone, or its buffer has been full for long: the closed connection will tell it
        finally:
            self._sending.release()

    def receive(self) -> Frame:
        """Wait for one frame; EOFError or OSError mean the end, UntrustedPeerError a forged one."""
        start = _read_exactly(self._sock, _HEADER.size + _MAC_BYTES)
        header, mac = start[: _HEADER.size], start[_HEADER.size :]
        kind, operation, serial, length = _HEADER.unpack(header)
        payload = _read_exactly(self._sock, length)
        digest = hashlib.sha256(payload).digest()
        if not hmac.compare_digest(mac, _mac(self._receive_key, self._received, header, digest)):
            raise UntrustedPeerError("a message failed authentication")
        self._received += 1
        return Frame(kind, operation, serial, payload)

    def set_timeouts(self, send_seconds: float, *, remote: bool) -> None:
        """Limit sends to a peer that no longer reads; detect a machine that vanished."""
        whole = int(send_seconds)
        moment = struct.pack("ll", whole, int((send_seconds - whole) * 1e6))
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, moment)
        if remote and sys.platform == "linux":
            # A killed process closes its socket; only a lost machine or cable stays silent.
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2)
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 120_000)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # the other end was faster
            self._sock.shutdown(socket.SHUT_RDWR)  # also wakes a thread blocked in receive()
        self._sock.close()

    def forget(self) -> None:
        """Close this process's copy of the socket without closing the connection."""
        self._sock.close()


def handshake_with_chief(
    sock: socket.socket, key: bytes, rank: int, timeout_seconds: float
) -> Connection:
    """Join as `rank`; UntrustedPeerError, EOFError or OSError mean that this is not our chief."""
    sock.settimeout(timeout_seconds)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    mine = secrets.token_bytes(_NONCE_BYTES)
    sock.sendall(_MAGIC + mine + _RANK.pack(rank))
    theirs = bytes(_read_exactly(sock, _NONCE_BYTES))
    proof = _read_exactly(sock, _MAC_BYTES)
    transcript = mine + theirs + _RANK.pack(rank)
    if not hmac.compare_digest(proof, _derive(key, b"chief", transcript)):
        raise UntrustedPeerError("it does not know this job's secret")
    sock.sendall(_derive(key, b"worker", transcript))
    sock.settimeout(None)
    return Connection(
        sock, _derive(key, b"to chief", transcript), _derive(key, b"to worker", transcript)
    )


def handshake_with_worker(
    sock: socket.socket, key: bytes, timeout_seconds: float
) -> tuple[int, Connection]:
    """Authenticate one worker on the listening side; return its proven rank."""
    sock.settimeout(timeout_seconds)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if bytes(_read_exactly(sock, len(_MAGIC))) != _MAGIC:
        raise UntrustedPeerError("it does not speak this protocol")
    theirs = bytes(_read_exactly(sock, _NONCE_BYTES))
    rank_bytes = bytes(_read_exactly(sock, _RANK.size))
    mine = secrets.token_bytes(_NONCE_BYTES)
    transcript = theirs + mine + rank_bytes
    sock.sendall(mine + _derive(key, b"chief", transcript))
    if not hmac.compare_digest(
        _read_exactly(sock, _MAC_BYTES), _derive(key, b"worker", transcript)
    ):
        raise UntrustedPeerError("it does not know this job's secret")
    sock.settimeout(None)
    connection = Connection(
        sock, _derive(key, b"to worker", transcript), _derive(key, b"to chief", transcript)
    )
    return _RANK.unpack(rank_bytes)[0], connection


def _mac(key: bytes, counter: int, header: bytes | bytearray, digest: bytes) -> bytes:
    return hmac.digest(key, _COUNTER.pack(counter) + header + digest, "sha256")


def _derive(key: bytes, label: bytes, transcript: bytes) -> bytes:
    return hmac.digest(key, label + b"\0" + transcript, "sha256")


def _read_exactly(sock: socket.socket, length: int) -> bytearray:
    data = bytearray(length)
    view = memoryview(data)
    filled = 0
    while filled < length:
        count = sock.recv_into(view[filled:])
        if count == 0:
            raise EOFError("the connection was closed")
        filled += count
    return data
