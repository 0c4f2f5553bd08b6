"""Run a script with pipes or a real terminal as its standard streams, and read what it wrote.

Scripts run in forks of the server, which has torch loaded; otherwise as `python -c` would run them.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import pty
import runpy
import select
import struct
import sys
import termios
import textwrap
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.support.workers import SERVER, leave_the_server

DEADLINE_SECONDS = 60.0


@dataclass(frozen=True)
class Ended:
    """What a script wrote into its pipes."""

    exit_code: int
    output: str
    errors: str


def start_script(
    script: str, stdout: int, stderr: int, environment: Mapping[str, str]
) -> BaseProcess:
    """Start a script; the caller keeps the files."""
    # A connection is the one thing with a file that such processes take as an argument.
    streams = [Connection(os.dup(number)) for number in (stdout, stderr)]
    process = SERVER.Process(
        target=_run,
        args=(textwrap.dedent(script), streams, _complete(environment)),
    )
    process.start()
    for stream in streams:
        stream.close()
    return process


def run_in_pipes(
    script: str, *, deadline_seconds: float = DEADLINE_SECONDS, **environment: str
) -> Ended:
    """Run a script that writes less than pipes hold; return it when it has ended."""
    (reads, writes), (reads_errors, writes_errors) = os.pipe(), os.pipe()
    process = start_script(script, writes, writes_errors, environment)
    os.close(writes)
    os.close(writes_errors)
    with os.fdopen(reads) as output, os.fdopen(reads_errors) as errors:
        exit_code = end(process, deadline_seconds)
        return Ended(exit_code, output.read(), errors.read())


def run_in_terminal(script: str, stdout: int | None = None, **environment: str) -> str:
    """Run a script with a real terminal and return everything it sent there."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    process = start_script(script, terminal if stdout is None else stdout, terminal, environment)
    os.close(terminal)
    output = b""
    deadline = time.monotonic() + DEADLINE_SECONDS
    try:
        while select.select([controller], [], [], max(0, deadline - time.monotonic()))[0]:
            try:
                chunk = os.read(controller, 65536)
            except OSError:  # how Linux says that nobody holds the terminal any more
                break
            if not chunk:
                break
            output += chunk
        assert end(process, deadline - time.monotonic()) == 0, output.decode()
    finally:
        os.close(controller)
    return output.decode()


def run_file(path: str | Path, *arguments: str, cwd: str | Path | None = None) -> None:
    """Do what `python` does with a file, in its directory unless told where.

    Meant for a process of its own, which it leaves changed.
    """
    os.chdir(cwd or Path(path).parent)
    sys.path.insert(0, str(Path(path).parent))
    sys.argv = [str(path), *arguments]
    runpy.run_path(str(path), run_name="__main__")


def file_script(path: str | Path, *arguments: str, cwd: str | Path | None = None) -> str:
    """Return the script that calls `run_file`."""
    words = [str(path), *arguments]
    return f"from {__name__} import run_file; run_file(*{words!r}, cwd={cwd and str(cwd)!r})"


def end(process: BaseProcess, seconds: float = DEADLINE_SECONDS) -> int:
    """Wait for the end of a script, kill it when it is late, and return its exit code."""
    process.join(max(1, seconds))
    if process.exitcode is None:
        process.kill()
        process.join()
    assert process.exitcode is not None
    return process.exitcode


def _complete(environment: Mapping[str, str]) -> dict[str, str]:
    size = {"COLUMNS": "120", "LINES": "40", "TERM": "xterm-256color"}
    kept = {k: v for k, v in os.environ.items() if k not in ("DET_PROGRESS", "NO_COLOR")}
    return {**kept, **size, **environment}


def _run(script: str, streams: list[Connection], environment: dict[str, str]) -> None:
    for number, name in enumerate(("stdout", "stderr"), start=1):
        os.dup2(streams[number - 1].fileno(), number)
        streams[number - 1].close()
        by_line = number == 2 or os.isatty(number)
        file = os.fdopen(number, "w", 1 if by_line else -1, closefd=False)
        setattr(sys, name, file)
        setattr(sys, f"__{name}__", file)
    os.environ.clear()
    os.environ.update(environment)
    leave_the_server()
    atexit._clear()  # what the server wants to do at its end
    exec(compile(script, "<script>", "exec"), {"__name__": "__main__"})
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
    os._exit(0)
