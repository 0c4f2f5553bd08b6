"""Clients without a token: `python -m benchmarks.dashboard.unauthorized_clients PORT`, until ended.

Requests with wrong tokens, foreign hosts, paths that lead out and heads that are none, as fast as
they are answered, over as many connections as a browser never has, and three hundred connections
that send nothing more. Prints how many were answered. It runs at the lowest priority, as if on
another machine: what it computes itself is not the dashboard's doing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys

_EAGER, _SLOW = 50, 300
_REQUESTS = (
    b"GET /api/experiments HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /?token=wrong HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: evil.example\r\nOrigin: http://evil.example\r\n\r\n",
    b"GET /../../etc/passwd HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"POST /api/experiments/1/kill HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{}",
    b"GET / HTTP/9.9\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
)


async def _be_eager(port: int, number: int, answered: list[int]) -> None:
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.closing(writer):
                writer.write(_REQUESTS[(number + answered[0]) % len(_REQUESTS)])
                is_answered = bool(await reader.read(65536))
                answered[0] += is_answered


async def _be_slow(port: int) -> None:
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.closing(writer):
                writer.write(b"GET / HTT")
                await reader.read()


async def _flood(port: int) -> None:
    answered, ended = [0], asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    eager = [asyncio.create_task(_be_eager(port, n, answered)) for n in range(_EAGER)]
    slow = [asyncio.create_task(_be_slow(port)) for _ in range(_SLOW)]
    await ended.wait()
    for task in (*eager, *slow):
        task.cancel()
    print(answered[0])


if __name__ == "__main__":
    os.nice(19)
    asyncio.run(_flood(int(sys.argv[1])))
