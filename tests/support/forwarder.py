"""A port that leads to another one, for as long as a test wants."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def forward(port: int, target: str) -> Iterator[list[int]]:
    """Connect whoever comes to a port of this machine with `target`, a `host:port`.

    Yields how many bytes were sent there, piece by piece.
    """
    sent: list[int] = []
    host, _, number = target.rpartition(":")
    pairs: list[socket.socket] = []
    with socket.create_server(("", port)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):  # the server is closed
                while True:
                    near, _ = server.accept()
                    far = socket.create_connection((host, int(number)))
                    pairs.extend((near, far))
                    for ends in ((near, far, sent), (far, near, [])):
                        threading.Thread(target=_pump, args=ends, daemon=True).start()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield sent
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for end in pairs:
                end.close()


def _pump(source: socket.socket, target: socket.socket, sent: list[int]) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sent.append(len(data))
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
