"""How contenders take turns: each trains in its own process and stops in the middle of training.

A contender runs one ordinary training. Its loss function calls `Clock.tick()`, the same for all;
after `turn` batches that call blocks until the driver gives the next turn. So contenders that are
compared run within a fraction of a second of each other, all in their steady state, and start-up
is not part of a turn.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

from benchmarks.job import Job

ROOT = pathlib.Path(__file__).resolve().parent.parent
_ADDRESS = "BENCHMARK_ADDRESS"
_START_SECONDS = 300.0
_TURN_SECONDS = 300.0


def user_environment() -> dict[str, str]:
    """Return the variables of contenders: as users do, they load code that is compiled already."""
    # Runs are recorded, as those of users are, but not among those of whoever measures.
    home = str(pathlib.Path(tempfile.gettempdir()) / "determined-benchmarks")
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "DET_HOME": home}


class Clock:
    """The contender's end: counts training batches and times turns."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._count = 0
        self._next_at = 1
        self._next: Callable[[], None] = self._arrive
        self._turns_taken = 0
        self._began = 0.0
        self._cpu_before = 0.0
        self._last_tick = self._saving = 0.0
        self._driver: Any = None
        address = os.environ.get(_ADDRESS)  # none when run by hand, under a profiler for example
        if address is not None and int(os.environ.get("RANK", "0")) == 0:
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(address)
            self._driver = connection.makefile("rw")

    def tick(self) -> None:
        """Count one training batch; to be called once in each."""
        self._count += 1
        if self._job.save_every:
            now = time.perf_counter()
            if self._count % self._job.save_every == 1:  # it saved since the last tick
                self._saving = now - self._last_tick
            self._last_tick = now
        if self._count == self._next_at:
            self._next()

    def finish(self) -> None:
        """Tell the driver that training is over."""
        self._send(peak_rss_mb=_peak_rss_mb())

    def _after(self, batches: int, what: Callable[[], None]) -> None:
        self._next_at, self._next = self._count + batches, what
        if batches == 0:
            what()

    def _arrive(self) -> None:
        self._send(first_batch=time.monotonic())
        self._after(self._job.warmup, self._warm)

    def _warm(self) -> None:
        self._send(is_warm=True)
        self._wait()

    def _wait(self) -> None:
        self._cpu_before = time.process_time()
        if self._driver is not None and not self._driver.readline():
            raise SystemExit("The driver is gone.")
        if self._turns_taken < self._job.rounds:
            self._after(self._job.lead, self._begin)

    def _begin(self) -> None:
        self._began = time.perf_counter()
        self._after(self._job.turn, self._end)

    def _end(self) -> None:
        wall = time.perf_counter() - self._began
        # Counted from turn to turn: work that other threads did meanwhile is part of it.
        cpu = time.process_time() - self._cpu_before
        share = self._job.turn / (self._job.turn + self._job.lead)
        self._send(wall=wall, cpu=cpu * share, saving=self._saving)
        self._turns_taken += 1
        self._wait()

    def _send(self, **message: Any) -> None:
        if self._driver is not None:
            self._driver.write(json.dumps(message) + "\n")
            self._driver.flush()


class Contender:
    """The driver's end: one process that trains when it is given a turn."""

    def __init__(self, module: str, job: Job, directory: pathlib.Path) -> None:
        """Start the process in `directory` and wait until it is ready for its first turn."""
        self._module = module
        self._sockets = tempfile.TemporaryDirectory(prefix="turns-")
        self._log = directory / "output.txt"
        server = socket.socket(socket.AF_UNIX)
        address = f"{self._sockets.name}/driver"
        server.bind(address)
        server.listen()
        began = time.monotonic()
        self._process = self._start(job, directory, address)
        self._connection = self._accept(server)
        arrival = self._receive()
        if "first_batch" not in arrival:  # it trained nothing
            raise self._failed()
        self.start_seconds = arrival["first_batch"] - began
        self._receive()

    def turn(self) -> dict[str, float]:
        """Let it train its next turn; return the seconds of it, and of the batch that saves."""
        self._connection.write("go\n")
        self._connection.flush()
        return self._receive()

    def finish(self) -> dict[str, float]:
        """Let it train to its end, after the last turn; return `peak_rss_mb`."""
        message = self.turn()
        if self._process.wait(_TURN_SECONDS) != 0:
            raise self._failed()
        self._sockets.cleanup()
        return message

    def stop(self) -> None:
        """End the process if it still runs."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()

    def _start(self, job: Job, directory: pathlib.Path, address: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", self._module, job.to_json()]
        if job.ranks > 1:
            torchrun = ["torch.distributed.run", "--standalone", f"--nproc-per-node={job.ranks}"]
            command[2:2] = [*torchrun, "-m"]
        environment = {
            **user_environment(),
            _ADDRESS: address,
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
            "TERM": "xterm-256color" if job.in_terminal else "dumb",
        }
        writing = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        output = _terminal(self._log) if job.in_terminal else os.open(self._log, writing)
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        os.close(output)
        return process

    def _accept(self, server: socket.socket) -> Any:
        server.settimeout(0.5)
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(TimeoutError):
                connection, _ = server.accept()
                server.close()
                connection.settimeout(_TURN_SECONDS)
                return connection.makefile("rw")
        raise self._failed()

    def _receive(self) -> dict[str, float]:
        line = self._connection.readline()
        if not line:
            raise self._failed()
        message: dict[str, float] = json.loads(line)
        return message

    def _failed(self) -> RuntimeError:
        self.stop()
        text = self._log.read_text(errors="replace")[-3000:]
        return RuntimeError(f"{self._module} failed ({self._process.returncode}):\n{text}")


def _terminal(log: pathlib.Path) -> int:
    """Return one end of a new terminal, whose other end goes to `log`."""
    ours, theirs = os.openpty()

    def drain() -> None:
        with log.open("wb") as file, contextlib.suppress(OSError):  # raised when nobody writes
            while data := os.read(ours, 65536):
                file.write(data)
        os.close(ours)

    threading.Thread(target=drain, daemon=True).start()
    return theirs


def _peak_rss_mb() -> float:
    with contextlib.suppress(OSError):
        status = pathlib.Path("/proc/self/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        if found:
            return int(found[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
