from __future__ import annotations

import socket

import pytest

from determined.core.ranks.listeners import listen
from determined.errors import DistributedError


def test_a_taken_port_is_passed_over() -> None:
    with listen("127.0.0.1", [0]) as first:
        taken = first.getsockname()[1]
        with listen("127.0.0.1", [taken, 0]) as second:
            assert second.getsockname()[0] == "127.0.0.1"
            assert second.getsockname()[1] != taken


def test_all_ports_taken_is_an_error() -> None:
    with listen("127.0.0.1", [0]) as first:
        taken = first.getsockname()[1]
        with pytest.raises(DistributedError, match=f"port {taken} is in use"):
            listen("127.0.0.1", [taken])


def test_an_address_of_a_gateway_is_served_from_all_interfaces() -> None:
    with listen("192.0.2.1", [0]) as listener:  # reserved for documentation: nobody's
        assert listener.getsockname()[0] == "0.0.0.0"


def test_a_name_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(DistributedError, match="cannot be resolved"):
        listen("no-such-host.invalid", [0])


def test_loopback_stays_loopback() -> None:
    with listen("localhost", [0]) as listener:
        assert listener.family in (socket.AF_INET, socket.AF_INET6)
        assert listener.getsockname()[0] in ("127.0.0.1", "::1")
