"""Run one worker, tag each line of its output with its rank, and end when it ends.

    python -m determined.launch.wrap_rank RANK [--] SCRIPT...

RANK is a number, or names of environment variables separated by commas; the first that is set
counts. The exit code is the worker's (128 + n after signal n). If the launcher names a directory in
DET_LAUNCH_DIR, a record is left there: which rank ended, when, how, and its last output.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Protocol

from determined._os.parent_death import PR_SET_PDEATHSIG, end_with_parent, libc

LONGEST_LINE_BYTES = io.DEFAULT_BUFFER_SIZE - 1
FORWARDED_SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_KEPT_LINES = 200
_ORPHAN_GRACE_SECONDS = 30.0
_DRAIN_SECONDS = 3.0
_LINE_END = re.compile(rb"\r\n|\r|\n")
_FORK_SERVER = "DET_WARM_RANKS"


class Worker(Protocol):
    """A process, as far as we need it."""

    def send_signal(self, number: int, /) -> None: ...
    def kill(self) -> None: ...
    def wait(self) -> int: ...


@dataclass(frozen=True)
class EndRecord:
    """How one worker ended, for the launcher's summary.

    `was_told` if it had been passed a signal to stop before.
    """

    rank: int
    attempt: int
    exit_code: int
    monotonic_seconds: float
    last_words: list[str]
    was_told: bool = False

    def save(self, directory: Path) -> None:
        path = directory / f"rank_{self.rank}.attempt_{self.attempt}.json"
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(self)))
        draft.replace(path)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m determined.launch.wrap_rank", description="Tag a worker's output."
    )
    parser.add_argument(
        "--no-redirect-stdio",
        action="store_true",
        help="accepted for old command lines; output always goes to the inherited streams",
    )
    parser.add_argument("rank", help="a number, or the names of variables that may hold it")
    parser.add_argument("script", nargs=argparse.REMAINDER)
    args = parser.parse_args(argv)
    script = args.script[1:] if args.script[:1] == ["--"] else args.script
    if not script:
        parser.error("nothing to run: give a script after the rank")
    rank = find_rank(args.rank)
    if rank is None:
        sys.stderr.write(
            f"wrap_rank: none of the variables {args.rank} is set to a number, so the rank of this "
            "process is unknown. Start it with torchrun, or give a number.\n"
        )
        return 1
    if "TORCHELASTIC_RUN_ID" in os.environ:  # else our parent is a shell, which may end before us
        end_with_parent(signal.SIGTERM)
    return run(rank, script)


def find_rank(text: str) -> int | None:
    """Return the rank that `text` gives: a number, or the first variable set to one."""
    candidates = [text, *(os.environ.get(name, "") for name in text.split(","))]
    return next((int(candidate) for candidate in candidates if candidate.isdigit()), None)


def run(rank: int, script: list[str]) -> int:
    """Run the worker to its end and return its exit code."""
    worker, stdout, stderr = _start(script)
    parent = os.getppid()
    told: list[int] = []

    def pass_on(number: int) -> None:
        worker.send_signal(number)
        if number in STOP_SIGNALS:
            told.append(number)
            worker.send_signal(signal.SIGCONT)  # a suspended one would not notice
        if number == signal.SIGTERM and os.getppid() != parent:  # no second signal will come
            timer = threading.Timer(_ORPHAN_GRACE_SECONDS, worker.kill)
            timer.daemon = True
            timer.start()

    with forwarding(pass_on):
        last_words: deque[str] = deque(maxlen=_KEPT_LINES)
        readers = [
            threading.Thread(target=copy, args=(stdout, sys.stdout.buffer, rank)),
            threading.Thread(
                target=copy, args=(stderr, sys.stderr.buffer, rank, last_words.append)
            ),
        ]
        for reader in readers:
            reader.daemon = True  # a grandchild may hold the pipe open for long
            reader.start()
        status = worker.wait()
        ended = time.monotonic()
        for reader in readers:
            reader.join(timeout=max(0.0, ended + _DRAIN_SECONDS - time.monotonic()))
    exit_code = status if status >= 0 else 128 - status
    directory = os.environ.get("DET_LAUNCH_DIR")
    if directory:
        attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        record = EndRecord(rank, attempt, exit_code, ended, list(last_words), bool(told))
        with contextlib.suppress(OSError):  # the launcher is gone: nobody reads it
            record.save(Path(directory))
    return exit_code


def _start(script: list[str]) -> tuple[Worker, IO[bytes], IO[bytes]]:
    """Start the worker; return it and what it writes.

    In a session of its own: a signal to our process group would reach the worker twice, once from
    the sender and once from us, and a second signal means "at once".
    """
    environment = {name: value for name, value in os.environ.items() if name != _FORK_SERVER}
    if _FORK_SERVER in os.environ and (warm := _start_warm(script, environment)) is not None:
        return warm
    library = libc()  # looked up before the fork: little is safe between fork and exec

    def bind_to_parent() -> None:
        if library is not None:
            library.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    worker = subprocess.Popen(
        script,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=bind_to_parent,
    )
    assert worker.stdout is not None
    assert worker.stderr is not None
    return worker, worker.stdout, worker.stderr


def _start_warm(
    script: list[str], environment: dict[str, str]
) -> tuple[Worker, IO[bytes], IO[bytes]] | None:
    """Have the worker forked from a process that has torch loaded, if this launch has one."""
    from determined.platform.runs.warm import ranks

    pipes = os.pipe(), os.pipe()
    (stdout, theirs), (stderr, errors) = pipes
    worker = ranks.fork(script, environment, (0, theirs, errors), signal.SIGKILL)
    for descriptor in (theirs, errors, *(() if worker else (stdout, stderr))):
        os.close(descriptor)
    if worker is None:
        return None
    return worker, os.fdopen(stdout, "rb", 0), os.fdopen(stderr, "rb", 0)


def copy(
    source: IO[bytes], target: IO[bytes], rank: int, also: Callable[[str], None] | None = None
) -> None:
    """Copy lines from a pipe, each with its rank in front, whole lines at a time."""
    tag = f"[rank={rank}] ".encode()
    chunks = iter(lambda: os.read(source.fileno(), 65536), b"")
    for lines in split_lines(chunks):
        # Bytes that are not text must not stop us: the worker would block on a full pipe.
        texts = [line.decode(errors="replace") for line in lines]
        with contextlib.suppress(OSError, ValueError):  # nobody reads us any more: keep draining
            target.write(b"".join(tag + text.encode() + b"\n" for text in texts))
            target.flush()
        if also is not None:
            for text in texts:
                also(text)


def split_lines(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield the lines that each chunk completes, without their ends; too long ones in pieces.

    A "\\r" ends a line too, or a progress bar would never be seen.
    """
    rest = b""
    after_return = False
    for chunk in chunks:
        *lines, rest = _LINE_END.split(rest + chunk)
        if after_return and chunk.startswith(b"\n"):
            lines = lines[1:]  # the two halves of one "\r\n"
        after_return = chunk.endswith(b"\r")
        pieces = [piece for line in lines for piece in _cut(line)]
        *full, rest = _cut(rest)
        if pieces or full:
            yield pieces + full
    if rest:
        yield [rest]


def _cut(line: bytes) -> list[bytes]:
    return [
        line[start : start + LONGEST_LINE_BYTES]
        for start in range(0, max(len(line), 1), LONGEST_LINE_BYTES)
    ]


@contextlib.contextmanager
def forwarding(send: Callable[[int], None]) -> Iterator[None]:
    """Pass signals on instead of acting on them."""

    def forward(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            send(number)

    before = {number: signal.signal(number, forward) for number in FORWARDED_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
