"""Hang reports: what every rank is doing when training makes no progress.

The loop reports what it does (`beat`); a thread checks it at intervals. Ranks that wait for each
other cannot use collectives, so they share small files: a status of each rank, and one
report per hang to which every rank adds its stacks.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

logger = logging.getLogger("determined.core")

_DEFAULT_TIMEOUT_SECONDS = 600.0
_LONGEST_INTERVAL_SECONDS = 5.0
_OLD_SECONDS = 3 * _LONGEST_INTERVAL_SECONDS
_CHILD_ANSWER_SECONDS = 1.0
_CHILD_VARIABLE = "_DET_WATCHDOG"

_WAITS = "waits for other ranks in"

_COLLECTIVES = ("group", "channel", "listeners", "rendezvous")
# Where the main thread of a rank is when it waits for others: the collectives of torch and ours.
_WAITING = (
    *("torch/distributed/", "torch/autograd/", "torch/nn/parallel/"),
    *(f"determined/core/ranks/{name}.py" for name in _COLLECTIVES),
)
_STANDARD_LIBRARY = str(Path(os.__file__).parent)
_LIBRARIES = ("/site-packages/", "/dist-packages/", f"{Path(__file__).parents[2]}/")

# What a rank does, its number (if counted), and when it began.
_Beat = tuple[str, int | None, float]


class Watchdog:
    """Writes a report when `beat` has not been called for `timeout_seconds`, and keeps watching.

    Args:
        directory: where ranks share their status and reports; the same for all ranks of a job.
        timeout_seconds: silence that counts as a hang; 0 turns it off. By default the variable
            DET_HANG_TIMEOUT, else 600.
        last_collective: returns what this rank entered last, to be shown in reports.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        rank: int,
        size: int,
        timeout_seconds: float | None = None,
        last_collective: Callable[[], str] = lambda: "unknown",
    ) -> None:
        if timeout_seconds is None:
            timeout_seconds = _timeout_from_environment()
        self._directory = Path(directory)
        self._rank = rank
        self._size = size
        self._timeout_seconds = timeout_seconds
        self._last_collective = last_collective
        self._beat: _Beat = ("start", None, time.monotonic())
        self._reported: _Beat | None = None
        self._answered: set[Path] = set()
        self._has_directory = False
        self._has_warned = False
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start watching; does nothing when turned off."""
        if self._timeout_seconds <= 0 or self._thread is not None:
            return
        # Loader workers find this in their environment.
        os.environ[_CHILD_VARIABLE] = f"{self._rank} {self._directory}"
        _remove_stale(_found(self._directory.parent, "*/rank_*.json"))  # runs that were killed
        self._answered = set(self._reports())  # of earlier runs
        self._beat = ("start", None, time.monotonic())
        if self._size > 1:  # the others must know this rank even if it is stopped soon
            self._try(self._save_status)
        self._stopping.clear()
        self._thread = threading.Thread(target=self._watch, name="determined-watchdog", daemon=True)
        self._thread.start()

    def beat(self, what: str, number: int | None = None) -> None:
        """Note progress. One attribute is stored, so it may be called for every batch."""
        self._beat = (what, number, time.monotonic())

    def stop(self) -> None:
        """End watching and remove this rank's status; reports stay."""
        if self._thread is None:
            return
        self._stopping.set()
        self._thread.join()
        self._thread = None
        os.environ.pop(_CHILD_VARIABLE, None)
        stacks = _found(self._directory, f"stack_{self._rank}_*")
        for path in (self._status_path(self._rank), *stacks):
            path.unlink(missing_ok=True)
        _remove_stale(_found(self._directory, "rank_*.json"))
        if self._has_directory:
            for path in (self._directory, self._directory.parent):
                with contextlib.suppress(OSError):  # there are reports, or other ranks still watch
                    path.rmdir()

    def _watch(self) -> None:
        interval = min(_LONGEST_INTERVAL_SECONDS, self._timeout_seconds / 4)
        while not self._stopping.wait(interval):
            self._try(self._look)

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except OSError as error:
            if not self._has_warned:
                logger.warning("the watchdog cannot write to %s: %s", self._directory, error)
            self._has_warned = True

    def _look(self) -> None:
        self._save_status()
        beat = self._beat
        reports = self._reports()
        self._answer(reports, beat)
        silent_seconds = time.monotonic() - beat[2]
        if silent_seconds > self._timeout_seconds and self._reported is not beat:
            # Numbered from one listing of the directory: of two ranks that notice at the same time
            # one finds the file there, and its silence goes into the other's report.
            report = self._directory / f"hang_{len(reports) + 1}.txt"
            self._open_report(report, silent_seconds)
            self._answer([report], beat)

    def _answer(self, reports: list[Path], beat: _Beat) -> None:
        """Add this rank's part to each report that lacks it; its own silence is then reported."""
        for report in reports:
            if report not in self._answered:
                self._answered.add(report)
                self._reported = beat
                _append(report, self._describe_myself())

    def _open_report(self, path: Path, silent_seconds: float) -> None:
        lines = [
            f"rank {self._rank} made no progress for {silent_seconds:.1f} s.",
            "",
            "All ranks:",
        ]
        statuses = [self._status_of(rank) for rank in range(self._size)]
        lines += [_describe(rank, status) for rank, status in enumerate(statuses)]
        with contextlib.suppress(FileExistsError):
            _append(path, "\n".join(lines) + "\n", os.O_EXCL)
            logger.error(
                "rank %d made no progress for %.0f s (last: %s). %s %s shows what each rank is "
                "doing. DET_HANG_TIMEOUT sets the seconds of silence.",
                self._rank,
                silent_seconds,
                _doing(self._beat),
                _suspicion(statuses),
                path,
            )

    def _reports(self) -> list[Path]:
        return sorted(_found(self._directory, "hang_*.txt"))

    def _status_path(self, rank: int) -> Path:
        return self._directory / f"rank_{rank}.json"

    def _save_status(self) -> None:
        beat = self._beat
        status = {
            "doing": _doing(beat),
            "silent_seconds": round(time.monotonic() - beat[2], 1),
            "collective": self._last_collective(),
            "at": _main_thread_location(),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "written": time.time(),
        }
        draft = self._status_path(self._rank).with_suffix(".draft")
        if not self._has_directory:  # created once: if it is removed later, that was intended
            self._directory.mkdir(parents=True, exist_ok=True)
            self._has_directory = True
        draft.write_text(json.dumps(status))
        draft.replace(self._status_path(self._rank))

    def _status_of(self, rank: int) -> dict[str, Any] | None:
        try:
            status: dict[str, Any] = json.loads(self._status_path(rank).read_text())
        except (OSError, ValueError):
            return None
        return status

    def _describe_myself(self) -> str:
        beat = self._beat
        lines = [
            "",
            f"=== rank {self._rank}, pid {os.getpid()} on {socket.gethostname()}: "
            f"last beat {_doing(beat)!r} {time.monotonic() - beat[2]:.1f} s ago, "
            f"last collective {self._last_collective()}",
            f"rank {self._rank} {_main_thread_location()}",
            _own_stacks(),
        ]
        import psutil

        for child in psutil.Process().children(recursive=True):
            lines.append(f"--- rank {self._rank}, child {child.pid}: {_process_state(child.pid)}")
            lines.append(self._child_stacks(child.pid))
        return "\n".join(lines) + "\n"

    def _child_stacks(self, pid: int) -> str:
        path = _stack_path(self._directory, self._rank, pid)
        if not path.exists():  # the signal would end a process without a handler
            return "(cannot show its stacks)"
        before = path.stat().st_size
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)
        deadline = time.monotonic() + _CHILD_ANSWER_SECONDS
        while path.stat().st_size == before and time.monotonic() < deadline:
            time.sleep(0.02)
        return path.read_text(errors="replace")[before:] or "(did not answer)"


def _describe(rank: int, status: dict[str, Any] | None) -> str:
    if status is None:
        return f"  rank {rank}: has written no status; it did not start, or its files are elsewhere"
    text = (
        f"  rank {rank}: {status['at']}, last beat {status['doing']!r} "
        f"{status['silent_seconds']} s before its status, last collective {status['collective']}, "
        f"pid {status['pid']} on {status['host']}"
    )
    if status["host"] == socket.gethostname():
        text += f", process {_process_state(status['pid'])}"
    if (age := _age(status)) > _OLD_SECONDS:
        text += f"; its watchdog has not run for {age:.0f} s: stopped, or native code blocks it"
    return text


def _age(status: dict[str, Any]) -> float:
    return time.time() - float(status["written"])


def _suspicion(statuses: list[dict[str, Any] | None]) -> str:
    """Name the ranks that the others wait for: those that do not wait themselves."""
    if len(statuses) == 1:
        return f"It {_main_thread_location()}."
    late = [
        f"rank {rank} {'has written no status' if status is None else status['at']}"
        for rank, status in enumerate(statuses)
        if status is None or not status["at"].startswith(_WAITS) or _age(status) > _OLD_SECONDS
    ]
    if late:
        return f"The others are waiting for it: {'; '.join(late)}."
    return (
        "All ranks are waiting for each other in different places: is there code that only some "
        "ranks run?"
    )


def _main_thread_location() -> str:
    """Say in one line where the main thread is, to distinguish a late rank from waiting ones."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    stack = []
    while frame is not None:
        stack.append((frame.f_code.co_filename, f"{frame.f_code.co_name} ({_line(frame)})"))
        frame = frame.f_back
    # Waiting for a lock happens in the standard library: find the frame that called it.
    while len(stack) > 1 and _is_standard(stack[0][0]):
        del stack[0]
    if not stack:
        return "has no main thread"
    file, location = stack[0]
    text = f"{_WAITS if any(part in file for part in _WAITING) else 'is busy in'} {location}"
    users = [location for file, location in stack if not (_is_library(file) or _is_standard(file))]
    return f"{text}, called from {users[0]}" if users and users[0] != location else text


def _line(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _is_standard(file: str) -> bool:
    return file.startswith((_STANDARD_LIBRARY, "<frozen")) and "-packages/" not in file


def _is_library(file: str) -> bool:
    return any(part in file for part in _LIBRARIES)


def _found(directory: Path, pattern: str) -> list[Path]:
    """Return the files that match; other ranks and runs may remove the directory meanwhile."""
    try:
        return list(directory.glob(pattern))
    except FileNotFoundError:
        return []


def _remove_stale(statuses: Iterable[Path]) -> None:
    """Remove what processes of this machine that are gone could not remove themselves."""
    for path in statuses:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            status = json.loads(path.read_text())
            if status["host"] == socket.gethostname() and _is_dead(status["pid"]):
                path.unlink()
                path.parent.rmdir()  # fails while it holds anything


def _is_dead(pid: int) -> bool:
    import psutil

    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def _doing(beat: _Beat) -> str:
    what, number, _ = beat
    return what if number is None else f"{what} {number}"


def prepare_loader_worker() -> None:
    """Let this process, started by a watched one, show its stacks in reports."""
    rank, _, directory = os.environ.get(_CHILD_VARIABLE, "").partition(" ")
    if directory:
        with contextlib.suppress(OSError):  # a missing stack is better than a failed loader
            Path(directory).mkdir(parents=True, exist_ok=True)
            prepare_child(directory, int(rank))


def prepare_child(directory: str | os.PathLike[str], rank: int) -> None:
    """Let a loader worker of `rank` show its stacks in reports; call it in that process."""
    path = _stack_path(Path(directory), rank, os.getpid())
    # Never closed: the signal may come at any time, and faulthandler keeps the file.
    faulthandler.register(signal.SIGUSR1, file=path.open("w"), all_threads=True)


def _stack_path(directory: Path, rank: int, pid: int) -> Path:
    return directory / f"stack_{rank}_{pid}.txt"


def _own_stacks() -> str:
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return file.read()


def _process_state(pid: int) -> str:
    import psutil

    try:
        process = psutil.Process(pid)
        return f"{' '.join(process.cmdline()[:3])[:80]} is {process.status()}"
    except psutil.Error:
        return "has ended"


def _append(path: Path, text: str, flags: int = 0) -> None:
    """Add `text` in one write, so that the parts of several ranks do not mix."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | flags, 0o644)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _timeout_from_environment() -> float:
    text = os.environ.get("DET_HANG_TIMEOUT") or str(_DEFAULT_TIMEOUT_SECONDS)
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if seconds < 0:
        raise ValueError(
            f"DET_HANG_TIMEOUT must be a number of seconds, or 0 for off, got {text!r}."
        )
    return seconds
