"""Run `det` as a user does: in a process of its own, in pipes or on a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from determined.cli._commands.errors import exit_code_of
from determined.cli._commands.nouns import det

DEADLINE_SECONDS = 100.0


def run_det(
    *arguments: str,
    stdin: str = "",
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `python -m determined.cli` to its end, with its output as text."""
    return subprocess.run(
        [sys.executable, "-m", "determined.cli", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        cwd=cwd,
        env={**os.environ, **(environment or {})},
    )


def told_by(*words: str, code: int = 0) -> str:
    """Run `det`; returns what it printed, or its error where it is to end with a code."""
    answer = run_det(*words)
    assert answer.returncode == code, answer.stderr
    assert "Traceback" not in answer.stderr
    return answer.stderr if code else answer.stdout


class Terminal:
    """A command on a terminal of its own: what it wrote, and a keyboard."""

    def __init__(self, process: subprocess.Popen[bytes], controller: int) -> None:
        self.process = process
        self.output = ""
        self._controller = controller

    def until(self, text: str) -> None:
        """Wait until a text was written."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while text not in self.output:
            assert self._read(deadline), f"{text!r} never came: {self.output}"

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._controller, keys.encode())

    def end(self) -> int:
        """Wait for the end; returns the exit code."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self._read(deadline):
            pass
        return self.process.wait(DEADLINE_SECONDS)

    def _read(self, deadline: float) -> bool:
        left = max(0.0, deadline - time.monotonic())
        if not select.select([self._controller], [], [], left)[0]:
            return False
        try:
            chunk = os.read(self._controller, 65536)
        except OSError:  # how Linux says that nobody holds the terminal any more
            return False
        self.output += chunk.decode(errors="replace")
        return bool(chunk)


@contextlib.contextmanager
def det_on_a_terminal(
    *arguments: str, columns: int = 120, environment: Mapping[str, str] | None = None
) -> Iterator[Terminal]:
    """Run `det` with a terminal as its standard streams, where Ctrl-C reaches it."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    clean = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-m", "determined.cli", *arguments],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={**clean, "TERM": "xterm", **(environment or {})},
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(terminal)
    try:
        yield Terminal(process, controller)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        os.close(controller)


class Answer(NamedTuple):
    """How a command ended within this process, and what it wrote."""

    code: int
    output: str
    errors: str


class _Screen(io.StringIO):
    """What claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def call_det(*arguments: str, home: Path, stdin: str = "", on_a_terminal: bool = False) -> Answer:
    """Run `det` within this process: quick, for commands that start and change nothing."""
    made = _Screen if on_a_terminal else io.StringIO
    output, errors, before = made(), made(), os.environ.get("DET_HOME")
    keyboard, sys.stdin = sys.stdin, io.StringIO(stdin)
    os.environ["DET_HOME"] = str(home)
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            code = exit_code_of(det, list(arguments))
    finally:
        sys.stdin = keyboard
        os.environ.pop("DET_HOME")
        if before is not None:
            os.environ["DET_HOME"] = before
    return Answer(code, output.getvalue(), errors.getvalue())
