"""A child process that answers requests in JSON lines, one at a time, with a timeout."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

_LONGEST_TAIL = 4000
_POLL_SECONDS = 0.5


class ChildLostError(Exception):
    """The process ended without an answer, or took too long; the text says which.

    `by_signal` if something else ended it: the same request may be answered next time.
    """

    def __init__(self, message: str, by_signal: bool = False) -> None:
        super().__init__(message)
        self.by_signal = by_signal


class Child:
    """A process with pipes for its standard input and output, and a file for standard error.

    Args:
        argv: the command.
        directory: its working directory.
        timeout_seconds: how long one answer may take.
        log: the file for its standard error, whose end is in the error if it dies; None for a
            temporary file.
        variables: its environment; None for the environment of this process.
    """

    def __init__(
        self,
        argv: list[str],
        directory: Path | None,
        timeout_seconds: float,
        log: Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._timeout = timeout_seconds
        self._errors: IO[bytes] = (  # closed with the process
            tempfile.TemporaryFile() if log is None else log.open("a+b")  # noqa: SIM115
        )
        self._log_start = self._errors.seek(0, os.SEEK_END)
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                cwd=directory,
                env=None if variables is None else dict(variables),
                start_new_session=True,  # a Ctrl-C in a terminal is for the supervisor
            )
        except OSError:
            self._errors.close()
            raise
        self._unread = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, line: str) -> None:
        """Write one line. Raises ChildLostError if the process no longer reads."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise self._lost() from None

    def receive(self) -> bytes:
        """Wait for one line. Raises ChildLostError if none arrives."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        poll = select.poll()  # unlike select(), it takes any descriptor
        poll.register(descriptor, select.POLLIN)
        deadline = time.monotonic() + self._timeout
        while b"\n" not in self._unread:
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                self.close()
                raise ChildLostError(
                    f"took more than {self._timeout:g} s for one event, and was killed."
                )
            part = os.read(descriptor, 65536)
            if not part:
                raise self._lost()
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def abort(self) -> None:
        """End the process; a thread that waits for its answer gets ChildLostError."""
        self._process.kill()

    def close(self) -> None:
        """End the process; calling again does nothing."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None and not stream.closed:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def _lost(self) -> ChildLostError:
        try:
            status = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:  # it closed its output, but keeps running
            self._process.kill()
            status = self._process.wait()
        output = b""
        if not self._errors.closed:
            start = max(self._log_start, self._errors.seek(0, os.SEEK_END) - _LONGEST_TAIL)
            self._errors.seek(start)
            output = self._errors.read()
        self.close()
        text = output.decode(errors="replace").strip()
        return ChildLostError(f"ended with status {status}.\n{text}".strip(), by_signal=status < 0)


def end_with_parent() -> None:
    """End this process when its parent is gone, whatever it is doing."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="det-parent-watch", daemon=True).start()
