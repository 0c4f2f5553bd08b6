from __future__ import annotations

import hashlib
import pickle
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from determined.core.ranks.channel import (
    Connection,
    UntrustedPeerError,
    handshake_with_chief,
    handshake_with_worker,
)

KEY = b"the job's key"
TIMEOUT_SECONDS = 10


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        outer = socket.create_connection(listener.getsockname(), timeout=TIMEOUT_SECONDS)
        inner, _ = listener.accept()
    with outer, inner:
        yield outer, inner


def _greet(
    sockets: tuple[socket.socket, socket.socket], worker_key: bytes, chief_key: bytes
) -> tuple[Connection, int, Connection]:
    """Return the worker's connection, the rank the chief saw, the chief's connection."""
    outer, inner = sockets
    with ThreadPoolExecutor(1) as pool:
        chief = pool.submit(handshake_with_worker, inner, chief_key, TIMEOUT_SECONDS)
        try:
            worker = handshake_with_chief(outer, worker_key, 3, TIMEOUT_SECONDS)
        except UntrustedPeerError:
            outer.close()
            assert isinstance(chief.exception(), EOFError | OSError)
            raise
        return worker, *chief.result()


def _send(connection: Connection, payload: bytes) -> None:
    connection.send(1, 2, 3, payload, hashlib.sha256(payload).digest())


@pytest.mark.parametrize("length", [0, 1, 100, 65535, 65536, 3_000_000])
def test_what_is_sent_arrives(sockets: tuple[socket.socket, socket.socket], length: int) -> None:
    worker, rank, chief = _greet(sockets, KEY, KEY)
    payload = bytes(length)
    sender = threading.Thread(target=_send, args=(worker, payload))
    sender.start()
    frame = chief.receive()
    sender.join()
    assert rank == 3
    assert (frame.kind, frame.operation, frame.serial, frame.payload) == (1, 2, 3, payload)


def test_ends_with_different_keys_refuse_each_other(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    with pytest.raises(UntrustedPeerError, match="secret"):
        _greet(sockets, KEY, b"another key")


def test_a_stranger_is_refused_before_anything_is_unpickled(
    sockets: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    outer, inner = sockets
    outer.sendall(pickle.dumps(_Bomb(tmp_path / "exploded")) * 10)
    with pytest.raises(UntrustedPeerError, match="protocol"):
        handshake_with_worker(inner, KEY, TIMEOUT_SECONDS)
    assert not (tmp_path / "exploded").exists()


def test_a_changed_byte_is_noticed(sockets: tuple[socket.socket, socket.socket]) -> None:
    worker, _, chief = _greet(sockets, KEY, KEY)
    right = b"pay 1"
    worker.send(1, 2, 3, b"pay 9", hashlib.sha256(right).digest())
    with pytest.raises(UntrustedPeerError, match="authentication"):
        chief.receive()


def test_a_replayed_message_is_noticed(sockets: tuple[socket.socket, socket.socket]) -> None:
    worker, _, chief = _greet(sockets, KEY, KEY)
    outer, _ = sockets
    recorded = bytearray()

    class Recorder:
        def sendall(self, data: bytes) -> None:
            recorded.extend(data)
            outer.sendall(data)

    worker._sock = Recorder()  # type: ignore[assignment]  # stands for whoever sits on the wire
    _send(worker, b"once")
    assert chief.receive().payload == b"once"
    outer.sendall(recorded)
    with pytest.raises(UntrustedPeerError, match="authentication"):
        chief.receive()


def test_a_notice_never_waits_for_an_end_that_does_not_read(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    worker, _, _ = _greet(sockets, KEY, KEY)
    for _ in range(100):
        worker.try_send(2, bytes(1_000_000))


class _Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)
