"""Where the server listens, and under which names."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from determined.dashboard.server.serve import address, bind, is_loopback, make_access
from determined.errors import DeterminedError
from determined.platform.homes.home import Home
from tests.dashboard.served import Served


def test_a_client_that_does_not_read_holds_nobody_up(shown: Served) -> None:

    cookie = f"{shown.access.cookie_name}={shown.access.cookie}"
    lazy = []
    for _ in range(20):
        connection = socket.create_connection(("127.0.0.1", shown.port), timeout=30)
        connection.sendall(
            b"GET /api/trials/1/logs/download HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            + f"Cookie: {cookie}\r\n\r\n".encode()
        )
        lazy.append(connection)
    assert shown.json("/api/session")["version"]
    for connection in lazy:
        connection.close()


def test_other_hosts_know_the_names_of_this_machine(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert make_access(home, "127.0.0.1").names >= {"localhost"}
    assert make_access(home, "0.0.0.0").names > {"localhost"}
    assert not is_loopback("0.0.0.0")
    assert is_loopback("127.0.0.2")
    assert address("0.0.0.0", 80, "t") == "http://127.0.0.1:80/?token=t"
    assert address("::1", 80, "t") == "http://[::1]:80/?token=t"


def test_a_port_in_use_is_passed_over_or_named() -> None:
    first = bind("127.0.0.1", 0)
    try:
        port = first.getsockname()[1]
        with pytest.raises(DeterminedError, match=f"port {port}.*--port"):
            bind("127.0.0.1", port)
        other = bind("127.0.0.1", None)
        other.close()
    finally:
        first.close()


def test_many_at_once_get_their_own_answers(shown: Served) -> None:
    wrong: list[str] = []

    def ask(number: int) -> None:
        trial = number % 16 + 1
        if shown.json(f"/api/trials/{trial}")["id"] != trial:
            wrong.append(str(trial))

    threads = [threading.Thread(target=ask, args=[n]) for n in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_answers_do_not_wait_for_the_clients_receipt() -> None:
    listener = bind("127.0.0.1", 0)
    try:
        assert listener.proto == socket.IPPROTO_TCP  # by this asyncio knows that it is TCP
    finally:
        listener.close()
