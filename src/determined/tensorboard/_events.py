"""Writes scalars to a TensorBoard event file from a background thread, a segment at a time."""

from __future__ import annotations

import atexit
import io
import itertools
import logging
import os
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from determined.tensorboard._records import scalar_records, version_record

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

logger = logging.getLogger("determined.tensorboard")

_LINGER_SECONDS = 0.25  # each write wakes a thread, and training waits for it
_MAX_POINTS = 1_000_000
_STALL_SECONDS = 5.0
_CLOSE_SECONDS = 30.0

_file_numbers = itertools.count()


class _Points(NamedTuple):
    tag: str
    values: NDArray[np.float64]
    steps: NDArray[np.int64]
    since: float
    until: float

    def encoded(self) -> bytes:
        # A report's points happened since the report before: spread them evenly over that time.
        if len(self.values) == 1:
            wall_times = np.array([self.until])
        else:
            wall_times = np.linspace(self.since, self.until, len(self.values) + 1)[1:]
        return scalar_records(self.tag, wall_times, self.steps, self.values)


class ScalarEvents:
    """Scalars for TensorBoard, cheap enough to log every batch.

    `add` only remembers; a thread encodes and writes a quarter of a second later, or at once after
    `write_soon`. `flush` waits until the points added before it are in the file, where they survive
    the death of the process. A file that cannot be written costs points and one warning, never the
    training. The file is made at the first point; after `close` the next point starts another.

    Args:
        directory: Where the event file goes; made when needed. Other writers may share it.
        filename_suffix: End of the file's name; keeps it apart from those `SummaryWriter` gives.
    """

    def __init__(
        self, directory: str | os.PathLike[str], filename_suffix: str = ".determined"
    ) -> None:
        self._directory = Path(directory)
        self._suffix = filename_suffix
        self._created = time.time()
        self._last_added: dict[str, float] = {}
        self._changed = threading.Condition()
        self._pending: list[_Points] = []
        self._num_points = 0  # pending or being written
        self._num_added = self._num_written = 0  # calls of add
        self._hurry = self._closing = self._stalled = self._warned = False
        self._thread: threading.Thread | None = None
        self._file: io.FileIO | None = None
        self._size = 0

    def add(self, tag: str, values: ArrayLike, steps: Sequence[int] | NDArray[np.int64]) -> None:
        """Add the points of one tag; `values` and `steps` have one entry each per point."""
        own_values, own_steps = np.array(values, np.float64), np.array(steps, np.int64)
        if own_values.ndim != 1 or own_values.shape != own_steps.shape:
            raise ValueError(
                f"`values` and `steps` of {tag!r} must be flat and equally long, "
                f"got shapes {own_values.shape} and {own_steps.shape}."
            )
        if len(own_values):
            now = time.time()
            since = min(self._last_added.get(tag, self._created), now)
            self._last_added[tag] = now
            self._put(_Points(tag, own_values, own_steps, since, now))

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        """Add one point."""
        self.add(tag, [value], [step])

    def write_soon(self) -> None:
        """Have what was added written as soon as the thread runs, without waiting for it."""
        with self._changed:
            if self._pending:
                self._hurry = True
                self._changed.notify_all()

    def flush(self, timeout_seconds: float = _CLOSE_SECONDS) -> None:
        """Wait until every point added so far is in the file; give up after `timeout_seconds`."""
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
            target = self._num_added
            if not self._changed.wait_for(lambda: self._num_written >= target, timeout_seconds):
                self._warn_once(f"still writing after {timeout_seconds:g} seconds")

    def close(self) -> None:
        """Write what is left, close the file, end the thread. The next point starts a new file."""
        thread = self._thread
        if thread is None or not thread.is_alive():  # a forked child has no thread
            return
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        thread.join(_CLOSE_SECONDS)
        if thread.is_alive():
            self._warn_once(f"still writing after {_CLOSE_SECONDS:g} seconds")
        atexit.unregister(self.close)

    def _put(self, points: _Points) -> None:
        with self._changed:
            if not self._has_room():
                self._hurry = True
                self._changed.notify_all()
                timeout_seconds = 0.0 if self._stalled else _STALL_SECONDS
                if not self._changed.wait_for(self._has_room, timeout_seconds):
                    self._stalled = True  # so that the next call does not wait again
                    self._warn_once("the disk cannot keep up")
                    return
            self._stalled = False
            self._pending.append(points)
            self._num_points += len(points.values)
            self._num_added += 1
            if len(self._pending) == 1:
                self._changed.notify_all()
            if self._thread is None:
                self._start()

    def _has_room(self) -> bool:
        return self._num_points < _MAX_POINTS

    def _start(self) -> None:
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="tensorboard-events", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def _run(self) -> None:
        while segment := self._next_segment():
            try:
                self._write(b"".join(points.encoded() for points in segment))
            except Exception as error:
                self._warn_once(str(error))
            with self._changed:
                self._num_written += len(segment)
                self._num_points -= sum(len(points.values) for points in segment)
                self._changed.notify_all()

    def _next_segment(self) -> list[_Points]:
        """Wait for points; none means that the writer was closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._closing)
            self._changed.wait_for(lambda: self._hurry or self._closing, _LINGER_SECONDS)
            segment, self._pending, self._hurry = self._pending, [], False
            if not segment:
                self._thread = None  # under the lock: a point that comes now starts another
                if self._file is not None:
                    self._file.close()
                    self._file = None
            return segment

    def _write(self, data: bytes) -> None:
        if self._file is None:
            self._file, self._size = self._open(), 0
        if self._size == 0:
            data = version_record(time.time()) + data
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            self._file.truncate(self._size)  # readers stop for good at half a record
            self._file.seek(self._size)
            raise
        self._size += len(data)

    def _open(self) -> io.FileIO:
        self._directory.mkdir(parents=True, exist_ok=True)
        origin = f"{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}"
        number = f"{next(_file_numbers):06d}"  # files are read in the order of their names
        name = f"events.out.tfevents.{origin}.{number}{self._suffix}"
        return io.FileIO(self._directory / name, "x")

    def _warn_once(self, problem: str) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(
                "TensorBoard loses points in %s: %s. Training continues; this is shown once.",
                self._directory,
                problem,
            )
