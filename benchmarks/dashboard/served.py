"""A dashboard in a process of its own, a client of it, and what both cost."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import httpx
import psutil


class Answer(NamedTuple):
    """What one request took and brought."""

    milliseconds: float
    wire_bytes: int
    content: bytes


class Dashboard:
    """`det dashboard` on a home, and a client that keeps its connection."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._process = subprocess.Popen(
            [sys.executable, "-m", "determined.cli", "dashboard", "--no-browser", "--port", "0"],
            env={**os.environ, "DET_HOME": str(home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        said = ""
        for line in self._process.stdout:
            said += line
            if "Ctrl-C" in line:
                break
        found = re.search(r"(http://\S+)/\?token=\S+", said)
        assert found is not None, said
        self.entrance, self.root = found[0], found[1]
        self.port = int(self.root.rpartition(":")[2])
        self.client = httpx.Client(base_url=self.root, timeout=120, follow_redirects=True)
        self.client.get(self.entrance)  # leaves the cookie
        self._usage = psutil.Process(self._process.pid)

    def fetch(self, path: str) -> Answer:
        """Ask once."""
        begin = time.perf_counter()
        with self.client.stream("GET", path) as answer:
            raw = b"".join(answer.iter_raw())
        took = (time.perf_counter() - begin) * 1e3
        assert answer.status_code == 200, f"{path}: {answer.status_code} {raw[:300]!r}"
        is_packed = answer.headers.get("content-encoding") == "gzip"
        return Answer(took, len(raw), gzip.decompress(raw) if is_packed else raw)

    def megabytes(self) -> float:
        """What the server holds in memory."""
        return self._usage.memory_info().rss / 1e6

    def cpu_seconds(self) -> float:
        """What the server has computed so far, in its own code and in the system's."""
        times = self._usage.cpu_times()
        return float(times.user + times.system)

    def close(self) -> None:
        self.client.close()
        self._process.terminate()
        self._process.communicate(timeout=30)
