"""Messages between a fork server and its clients: JSON, and open files."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any

_LENGTH_BYTES = 8
_MOST_FILES = 8


def send(
    connection: socket.socket, message: dict[str, Any], descriptors: Sequence[int] = ()
) -> None:
    """Send a message; the other side gets copies of the descriptors."""
    content = json.dumps(message).encode()
    socket.send_fds(connection, [len(content).to_bytes(_LENGTH_BYTES, "big")], list(descriptors))
    connection.sendall(content)


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return the next message and its descriptors; EOFError when there will be none."""
    header, descriptors, *_ = socket.recv_fds(
        connection, _LENGTH_BYTES, _MOST_FILES, socket.MSG_CMSG_CLOEXEC
    )
    header += _read(connection, _LENGTH_BYTES - len(header))
    message: dict[str, Any] = json.loads(_read(connection, int.from_bytes(header, "big")))
    return message, descriptors


def _read(connection: socket.socket, size: int) -> bytes:
    content = bytearray()
    while len(content) < size:
        piece = connection.recv(min(size - len(content), 1 << 20))
        if not piece:
            raise EOFError
        content += piece
    return bytes(content)
