"""Merge the logs of several nodes into one, line by line as they arrive.

    log           the lines of all parts
    log.times     when they arrived
    log.merged    a record for each piece: of which part, how many bytes

A piece is added to the log first, its record second: after a crash, what has no record is cut off
and added again, so no line is lost or duplicated.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Sequence
from pathlib import Path

from determined._contracts.log_index import LONGEST_LINE_BYTES, Stamper, pack

_RECORD = struct.Struct("<QQ")
_MOST_BYTES = 1 << 20


class MergedLog:
    """The log in `folder`, from the logs `parts`."""

    def __init__(self, folder: Path, parts: Sequence[Path]) -> None:
        self._log = folder / "log"
        self._times = folder / "log.times"
        self._merged = folder / "log.merged"
        self._parts = parts
        self._offsets = [0] * len(parts)
        self._stamper = Stamper()
        self._recover()

    def _recover(self) -> None:
        content = self._merged.read_bytes() if self._merged.exists() else b""
        content = content[: len(content) // _RECORD.size * _RECORD.size]
        for part, length in _RECORD.iter_unpack(content):
            self._offsets[part] += length
        for path, size in ((self._merged, len(content)), (self._log, sum(self._offsets))):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.ftruncate(descriptor, size)
            os.close(descriptor)
        with self._log.open("rb") as file:
            while piece := file.read(_MOST_BYTES):
                self._stamper.stamp(piece, 0)

    def merge(self, *, is_last: bool = False) -> None:
        """Add the lines that have arrived; with `is_last`, also one without a newline."""
        for number, path in enumerate(self._parts):
            while piece := self._next(number, path, is_last):
                self._add(number, piece)

    def _next(self, number: int, path: Path, is_last: bool) -> bytes:
        try:
            with path.open("rb") as file:
                file.seek(self._offsets[number])
                content = file.read(_MOST_BYTES)
        except FileNotFoundError:
            return b""
        end = content.rfind(b"\n") + 1
        if not end and (is_last or len(content) > LONGEST_LINE_BYTES):
            end = len(content)
        return content[:end]

    def _add(self, number: int, piece: bytes) -> None:
        _append(self._log, piece)
        _append(self._merged, _RECORD.pack(number, len(piece)))
        self._offsets[number] += len(piece)
        stamp = self._stamper.stamp(piece, time.time_ns() // 1000)
        if stamp is not None:
            _append(self._times, pack(stamp))


def _append(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
        file.write(content)
