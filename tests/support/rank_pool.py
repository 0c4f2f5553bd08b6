"""Ranks that stay: processes with a process group that run one function after another.

For property tests, whose many examples cannot each start processes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from tests.support.workers import SERVER, _start, _work

T = TypeVar("T")


class RankPool:
    """As many processes as ranks."""

    def __init__(self, connections: list[Any]) -> None:
        self._connections = connections

    def run(self, fn: Callable[..., T], *args: Any, deadline_seconds: float = 60) -> list[T]:
        """Return `fn(*args)` of each rank; AssertionError with the traceback of one that failed."""
        for connection in self._connections:
            connection.send((fn, args))
        results = []
        for rank, connection in enumerate(self._connections):
            assert connection.poll(deadline_seconds), f"rank {rank} did not answer"
            value, error = connection.recv()
            assert error is None, f"rank {rank} failed:\n{error}"
            results.append(value)
        return results


@contextlib.contextmanager
def rank_pool(size: int) -> Iterator[RankPool]:
    """Start that many ranks, which end with the block."""
    pipes = [SERVER.Pipe() for _ in range(size)]
    processes = []
    with tempfile.TemporaryDirectory(prefix="pool-") as name:
        for rank in range(size):
            variables = {
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(size),
                "LOCAL_RANK": str(rank),
                "LOCAL_WORLD_SIZE": str(size),
                "GROUP_RANK": "0",
                "GROUP_WORLD_SIZE": "1",
                "OMP_NUM_THREADS": "1",
                "DET_STORAGE": str(Path(name) / "storage"),
                "DET_PROGRESS": "off",
            }
            work = (Path(name), variables, True, list(sys.path), _serve, (pipes[rank][1],))
            process = SERVER.Process(target=_work, args=work)
            _start(process, is_odd=rank % 2 == 1)
            processes.append(process)
        for _, far_end in pipes:
            far_end.close()
        connections = [near_end for near_end, _ in pipes]
        try:
            yield RankPool(connections)
        finally:
            for connection in connections:
                connection.close()  # which ends the ranks, unless one hangs
            for process in processes:
                process.join(5)
                if process.is_alive():
                    os.kill(process.pid or 0, signal.SIGKILL)
                    process.join()


def _serve(connection: Any) -> None:
    while True:
        try:
            fn, args = connection.recv()
        except EOFError:
            return
        try:
            connection.send((fn(*args), None))
        except Exception:
            connection.send((None, traceback.format_exc()))
