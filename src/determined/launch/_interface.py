"""Which network interface leads to another machine.

Gloo listens on the address of the host name, which is often 127.0.1.1, where no other machine can
reach it.
"""

from __future__ import annotations

import socket

_ANY_PORT = 9  # nothing is sent


def interface_to(host: str) -> str | None:
    """The interface of this machine that `host` is reached through; None if that is loopback."""
    import psutil

    try:
        family, _, _, _, target = socket.getaddrinfo(host, _ANY_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)
            own = probe.getsockname()[0]
    except OSError:  # gloo will report it
        return None
    if own.startswith("127.") or own == "::1":
        return None
    for name, addresses in psutil.net_if_addrs().items():
        if any(address.address.partition("%")[0] == own for address in addresses):
            return name
    return None
