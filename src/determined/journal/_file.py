"""Journal files: a head, then records of length, checksum and payload, only ever appended.

The checksum covers the position, the length and the payload. A record is therefore valid only
where it was written: zeros at the end of a file, or bytes that merely look like a record inside
another one, are never taken for a record.
"""

from __future__ import annotations

import contextlib
import enum
import fcntl
import os
import struct
import time
import uuid
import zlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from determined._os.regular_file import open_regular
from determined._os.weak_file_systems import fsync
from determined.errors import JournalError
from determined.journal._records import KIND_BYTES, Record, Unknown, decode, encode

MAX_RECORD_BYTES = 64 << 20

_MAGIC = b"DETJRNL\n"
_VERSION = 1
_FILE_HEAD = struct.Struct("<8sI")
_RECORD_HEAD = struct.Struct("<II")  # length, checksum
_PLACE = struct.Struct("<QI")  # offset, length: the start of what the checksum covers
_READ_BYTES = 4 << 20
_TO_FIELDS = _RECORD_HEAD.size + KIND_BYTES  # from the start of a record to its JSON
_JSON = b'{"'
_BEGINNING = struct.Struct("<IIBI2s")  # of a record: its head, kind, length of the JSON, `_JSON`
_CANDIDATE_COST = 64  # to look at one takes as long as to check so many bytes, or longer
_MOST_CHECKED_BYTES = 128 << 20


def new_journal_path(folder: Path) -> Path:
    """A new journal name for this process; names sort by creation time."""
    return folder / f"journal-{time.time_ns():020d}-{uuid.uuid4().hex[:12]}"


def _checksum(offset: int, payload: bytes | memoryview) -> int:
    return zlib.crc32(payload, zlib.crc32(_PLACE.pack(offset, len(payload))))


def _is_whole(data: bytes, offset: int) -> bool:
    """Whether the bytes of a journal from an offset on are complete records, unchanged."""
    position = 0
    if offset == 0:
        position = _FILE_HEAD.size
        if data[:position] != _FILE_HEAD.pack(_MAGIC, _VERSION):
            return False
    while position + _RECORD_HEAD.size <= len(data):
        length, checksum = _RECORD_HEAD.unpack_from(data, position)
        begin = position + _RECORD_HEAD.size
        payload = data[begin : begin + length]
        if len(payload) < length or _checksum(offset + position, payload) != checksum:
            return False
        position = begin + length
    return position == len(data)


class JournalWriter:
    """Appends records to a new file. Not usable after a fork.

    One thread may `sync` while another one appends; otherwise it is not thread-safe.

    Raises:
        JournalError: the file cannot be written. Earlier records stay readable, a partly written
            record is removed, and a later append may succeed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._owner = os.getpid()
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise JournalError(f"Cannot create the journal {path}: {error.strerror}.") from error
        self._end = 0
        self._synced = 0
        self._is_suspect = False
        self._is_closed = False
        self._write(_FILE_HEAD.pack(_MAGIC, _VERSION))

    def append(self, records: Iterable[Record]) -> None:
        """Write the records at once: readers see them from then on."""
        parts: list[bytes] = []
        offset = self._end
        for record in records:
            payload = encode(record)
            if len(payload) > MAX_RECORD_BYTES:
                raise JournalError(
                    f"A record of {len(payload):,} bytes is more than a journal accepts "
                    f"({MAX_RECORD_BYTES:,}): report fewer or smaller values at once."
                )
            parts += (_RECORD_HEAD.pack(len(payload), _checksum(offset, payload)), payload)
            offset += _RECORD_HEAD.size + len(payload)
        if parts:
            self._write(b"".join(parts))

    def sync(self) -> None:
        """Return when everything appended so far is on disk.

        The system reports only once that it could not write something, and then drops it. After
        such a failure, what is not known to be on disk is therefore written again.
        """
        end = self._end
        try:
            if self._is_suspect:
                self._write_again(self._synced, end)
            fsync(self._file, self.path, data_only=True)
        except OSError as error:
            self._is_suspect = True
            raise JournalError(f"Cannot sync the journal {self.path}: {error.strerror}.") from error
        self._synced, self._is_suspect = end, False

    def _write_again(self, start: int, end: int) -> None:
        data = b""
        while len(data) < end - start:
            piece = os.pread(self._file, end - start - len(data), start + len(data))
            if not piece:
                break
            data += piece
        if len(data) < end - start or not _is_whole(data, start):
            raise JournalError(
                f"The disk has lost reports in the journal {self.path}: start the run again, which "
                "then continues from its last checkpoint."
            )
        view = memoryview(data)
        while view:
            view = view[os.pwrite(self._file, view, end - len(view)) :]

    def hold(self) -> bool:
        """Lock the file until it is closed or this process ends; False if it cannot be locked."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Close the file; calling again does nothing."""
        if not self._is_closed:
            self._is_closed = True
            os.close(self._file)

    def _write(self, data: bytes) -> None:
        if self._is_closed:
            raise JournalError(f"The journal {self.path} is closed.")
        if os.getpid() != self._owner:
            raise JournalError(f"The journal {self.path} belongs to process {self._owner}.")
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._end)
                os.lseek(self._file, self._end, os.SEEK_SET)
            raise JournalError(
                f"Cannot write the journal {self.path}: {error.strerror}."
            ) from error
        self._end += len(data)


class Damage(enum.Enum):
    """What is found where no complete record begins."""

    NONE = "none"
    """The file ends there."""
    TORN = "torn"
    """The last write was incomplete; no complete record is lost."""
    CORRUPT = "corrupt"
    """The bytes were changed after they were written, or no journal ever wrote them."""


class JournalReader:
    """Reads the records of one journal file, from any offset at which a reader stopped before.

    A file that does not exist yet has no records. While its writer is alive, the last record may
    be incomplete for a moment; once the writer is gone, `diagnose()` tells what is there.
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset

    def records(
        self, limit_bytes: int | None = None, only: Collection[type[Record]] = ()
    ) -> Iterator[Record]:
        """Yield complete records; `offset` points to the end of the last one yielded.

        Args:
            limit_bytes: stop after about this many bytes, so that no file keeps others waiting.
            only: skip records of other kinds without decoding them.
        """
        with self._opened() as window:
            if window is None or (self.offset == 0 and not self._read_head(window)):
                return
            kinds = {cls.kind for cls in only}
            stop = window.size if limit_bytes is None else self.offset + limit_bytes
            while self.offset < min(stop, window.size):
                payload = window.payload(self.offset)
                if payload is None:
                    return
                self.offset += _RECORD_HEAD.size + len(payload)
                if kinds and payload[0] not in kinds:
                    continue
                try:
                    record = decode(payload)
                except ValueError:  # complete but undecodable: it must not stop us
                    record = Unknown(payload[0])
                yield record

    def diagnose(self) -> Damage:
        """Why there is no record at `offset`. Reads the rest of the file."""
        with self._opened() as window:
            if window is None or window.size == self.offset:
                return Damage.NONE
            is_torn = window.may_be_torn(self.offset) and window.next_whole(self.offset + 1) is None
        return Damage.TORN if is_torn else Damage.CORRUPT

    def is_damaged(self) -> bool:
        """Whether no writer can have left what is at `offset`, not even one that is still writing.

        Reads little; `diagnose` finds more, once the writer is gone.
        """
        with self._opened() as window:
            if window is None or window.payload(self.offset) is not None:  # it came just now
                return False
            return not window.may_be_torn(self.offset)

    def skip_damage(self) -> bool:
        """Move `offset` past corrupt bytes to the next complete record; False if there is none."""
        with self._opened() as window:
            found = None if window is None else window.next_whole(self.offset + 1)
        if found is not None:
            self.offset = found
        return found is not None

    @contextlib.contextmanager
    def _opened(self) -> Iterator[_Window | None]:
        try:
            with open_regular(self.path) as file:
                yield _Window(file)
        except FileNotFoundError:
            yield None
        except OSError as error:
            raise JournalError(f"Cannot read the journal {self.path}: {error.strerror}.") from error

    def _read_head(self, window: _Window) -> bool:
        if window.size < _FILE_HEAD.size:
            return False
        magic, version = _FILE_HEAD.unpack(window.bytes(0, _FILE_HEAD.size))
        if magic != _MAGIC or version == 0:  # there is no format 0: the rest did not reach the disk
            return False
        if version != _VERSION:
            raise JournalError(
                f"The journal {self.path} has format {version}; this version of determined reads "
                f"format {_VERSION}. Install the version that wrote it, or a newer one."
            )
        self.offset = _FILE_HEAD.size
        return True


class _Window:
    """A window over a file, read in large steps."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file.fileno()
        self.size = os.fstat(self._file).st_size
        self._start = 0
        self._data = memoryview(b"")

    def payload(self, offset: int) -> memoryview | None:
        """The payload of the record at `offset`; None if there is no complete one."""
        end = offset + _RECORD_HEAD.size
        if end > self.size:
            return None
        length, checksum = _RECORD_HEAD.unpack(self.bytes(offset, end))
        if not 0 < length <= MAX_RECORD_BYTES or end + length > self.size:
            return None
        payload = self.bytes(end, end + length)
        return payload if _checksum(offset, payload) == checksum else None

    def may_be_torn(self, offset: int) -> bool:
        """Whether a writer that was killed, or a power cut, may leave what is at `offset`.

        That is a beginning: the rest is not there, or is zeros, which never reached the disk.
        """
        if offset >= self.size:
            return True
        if offset == 0:
            head = self.bytes(0, min(self.size, _FILE_HEAD.size))
            return _FILE_HEAD.pack(_MAGIC, _VERSION).startswith(bytes(head).rstrip(b"\0"))
        start = bytes(self.bytes(offset, min(self.size, offset + _BEGINNING.size)))
        length, _, _, fields, mark = _BEGINNING.unpack(start.ljust(_BEGINNING.size, b"\0"))
        mark = mark.rstrip(b"\0")
        if length > MAX_RECORD_BYTES or not _JSON.startswith(mark):
            return False
        if mark and KIND_BYTES + fields > length:
            return False
        last = offset + _RECORD_HEAD.size + length - 1
        return last >= self.size or bytes(self.bytes(last, last + 1)) == b"\0"

    def next_whole(self, start: int) -> int | None:
        """The first offset from `start` on at which a complete record begins.

        Gives up if too many places look like a record but are not, which only malice can cause.
        """
        checked = 0
        for offset in self._candidates(max(start, _FILE_HEAD.size)):
            checked += _CANDIDATE_COST
            if checked > _MOST_CHECKED_BYTES:
                return None
            length, _ = _RECORD_HEAD.unpack(self.bytes(offset, offset + _RECORD_HEAD.size))
            if length <= MAX_RECORD_BYTES:
                checked += length
                if self.payload(offset) is not None:
                    return offset
        return None

    def _candidates(self, start: int) -> Iterator[int]:
        """The offsets at which a record may begin, judging by where there is JSON."""
        while start + _TO_FIELDS < self.size:
            piece = bytes(self.bytes(start, min(self.size, start + _READ_BYTES)))
            found = piece.find(_JSON, _TO_FIELDS)
            while found >= 0:
                yield start + found - _TO_FIELDS
                found = piece.find(_JSON, found + 1)
            start += max(1, len(piece) - _TO_FIELDS - 1)

    def bytes(self, start: int, end: int) -> memoryview:
        """The bytes from `start` to `end`, which lie within the file."""
        if start < self._start or end > self._start + len(self._data):
            count = max(end - start, _READ_BYTES)
            self._data = memoryview(os.pread(self._file, count, start))
            self._start = start
        return self._data[start - self._start : end - self._start]
