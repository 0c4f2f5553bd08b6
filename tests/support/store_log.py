"""What SQLite does to the files of a store, in order, and what a power cut may leave of it.

The default file layer of the SQLite library in this process is wrapped: real stores, real writes.
Nothing can remove the wrapper, so use it in a process of its own.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import dataclasses
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_SECTOR = 512
_JOURNALS = 0x00080000 | 0x00000800  # SQLITE_OPEN_WAL, SQLITE_OPEN_MAIN_JOURNAL
_METHODS = (
    "close read write truncate sync file_size lock unlock check_reserved_lock file_control "
    "sector_size device_characteristics shm_map shm_lock shm_barrier shm_unmap fetch unfetch"
)
_int, _long, _address = ctypes.c_int, ctypes.c_int64, ctypes.c_void_p
_WRITE = ctypes.CFUNCTYPE(_int, _address, _address, _int, _long)
_TRUNCATE = ctypes.CFUNCTYPE(_int, _address, _long)
_SYNC = ctypes.CFUNCTYPE(_int, _address, _int)
# The name as an address: SQLite keeps it, and reads what stands behind it.
_OPEN = ctypes.CFUNCTYPE(_int, _address, _address, _address, _int, _address)
_DELETE = ctypes.CFUNCTYPE(_int, _address, ctypes.c_char_p, _int)


class _Methods(ctypes.Structure):
    _fields_ = [("version", _int), *((name, _address) for name in _METHODS.split())]


class _File(ctypes.Structure):
    _fields_ = [("methods", ctypes.POINTER(_Methods))]


class _Layer(ctypes.Structure):
    _fields_ = [
        *(("version", _int), ("file_size", _int), ("longest_path", _int), ("next", _address)),
        *(("name", _address), ("data", _address), ("open", _address), ("delete", _address)),
    ]


@dataclasses.dataclass(frozen=True)
class Entry:
    """`write` has an offset and data, `truncate` an offset; `mark` is a note of the test.

    `sync` is of a file, `names` of the folder: until then a deleted file may come back.
    """

    kind: str
    file: str = ""
    offset: int = 0
    data: bytes = b""


class StoreLog:
    """Logs what happens below a folder from now on."""

    def __init__(self, folder: Path) -> None:
        self.entries: list[Entry] = []
        self._folder = os.fsencode(folder)
        self._names: dict[int, str] = {}
        self._new: set[int] = set()
        self._kept: list[Any] = []  # what C holds pointers to
        library = ctypes.CDLL(_library())
        library.sqlite3_vfs_find.restype = ctypes.POINTER(_Layer)
        self._layer = library.sqlite3_vfs_find(None).contents
        self._open, self._delete = _OPEN(self._layer.open), _DELETE(self._layer.delete)
        self._fsync = os.fsync
        os.fsync = self._flushed  # type: ignore[assignment]  # descriptors are all we flush
        self._layer.open = self._callback(_OPEN, self._opened)
        self._layer.delete = self._callback(_DELETE, self._deleted)

    def mark(self, note: str) -> None:
        self.entries.append(Entry("mark", note))

    def _callback(self, kind: Any, function: Any) -> int:
        made = kind(function)
        self._kept.append(made)
        return ctypes.cast(made, _address).value or 0

    def _opened(self, layer: int, place: int | None, file: int, flags: int, out: int) -> int:
        name = b"" if place is None else ctypes.string_at(place)
        is_new = bool(flags & _JOURNALS) and not Path(os.fsdecode(name)).exists()
        code = int(self._open(layer, place, file, flags, out))
        if code == 0 and name.startswith(self._folder):
            self._names[file] = os.fsdecode(name[len(self._folder) + 1 :])
            self._new.discard(file)
            if is_new:
                self._new.add(file)
            opened = _File.from_address(file)
            methods = _Methods.from_buffer_copy(opened.methods.contents)
            self._wrap(methods)
            self._kept.append(methods)
            opened.methods = ctypes.pointer(methods)
        return code

    def _wrap(self, methods: _Methods) -> None:
        write, truncate = _WRITE(methods.write), _TRUNCATE(methods.truncate)
        sync = _SYNC(methods.sync)

        def written(file: int, data: int, amount: int, offset: int) -> int:
            content = ctypes.string_at(data, amount)
            self.entries.append(Entry("write", self._names[file], offset, content))
            return int(write(file, data, amount, offset))

        def truncated(file: int, size: int) -> int:
            self.entries.append(Entry("truncate", self._names[file], size))
            return int(truncate(file, size))

        def synced(file: int, flags: int) -> int:
            code = int(sync(file, flags))
            if file in self._new:  # with a new journal or log, SQLite flushes the folder as well
                self._new.remove(file)
                self.entries.append(Entry("names"))
            self.entries.append(Entry("sync", self._names[file]))
            return code

        methods.write = self._callback(_WRITE, written)
        methods.truncate = self._callback(_TRUNCATE, truncated)
        methods.sync = self._callback(_SYNC, synced)

    def _deleted(self, layer: int, name: bytes, sync_folder: int) -> int:
        if name.startswith(self._folder):
            self.entries.append(Entry("delete", os.fsdecode(name[len(self._folder) + 1 :])))
        code = int(self._delete(layer, name, sync_folder))
        if sync_folder:
            self.entries.append(Entry("names"))
        return code

    def _flushed(self, descriptor: int) -> None:
        self._fsync(descriptor)
        if os.fsencode(Path(f"/proc/self/fd/{descriptor}").readlink()) == self._folder:
            self.entries.append(Entry("names"))


def _library() -> str:
    """The library that Python's own module has loaded."""
    import sqlite3

    assert sqlite3.sqlite_version
    maps = Path("/proc/self/maps").read_text().split()
    found = next((word for word in maps if "libsqlite3" in word), None)
    return found or ctypes.util.find_library("sqlite3") or "libsqlite3.so.0"


State = dict[str, bytes]


class Disk:
    """Follows a log; at each point, `after_power_cut` tells what the files may hold."""

    def __init__(self) -> None:
        self._safe: dict[str, bytearray] = {}
        self._pending: list[Entry] = []

    def do(self, entry: Entry) -> None:
        if entry.kind == "sync":
            self._flush(lambda pending: pending.file == entry.file and pending.kind != "delete")
        elif entry.kind == "names":
            self._flush(lambda pending: pending.kind == "delete")
        elif entry.kind != "mark":
            self._pending.append(entry)

    def _flush(self, is_meant: Callable[[Entry], bool]) -> None:
        for entry in filter(is_meant, self._pending):
            _apply(self._safe, entry)
        self._pending = [entry for entry in self._pending if not is_meant(entry)]

    def after_power_cut(self, draw: random.Random, draws: int) -> Iterator[State]:
        """Yield what may be left: nothing that was not flushed, all of it, mixtures."""
        yield self._state([])
        yield self._state(self._pending)
        for number in range(draws):
            if number % 2:  # in order, the last one torn
                kept = self._pending[: draw.randint(0, len(self._pending))]
                if kept and kept[-1].kind == "write":
                    kept = [*kept[:-1], _torn(kept[-1], draw)]
            else:
                kept = [entry for entry in self._pending if draw.random() < 0.5]
            yield self._state(kept)

    def _state(self, kept: list[Entry]) -> State:
        files = {name: bytearray(content) for name, content in self._safe.items()}
        # Where an old file was not deleted yet, the new one of that name has none.
        deletes = [entry for entry in self._pending if entry.kind == "delete"]
        hidden = {e.file for e in deletes if not any(e is other for other in kept)}
        for entry in kept:
            if entry.file not in hidden:
                _apply(files, entry)
        return {name: bytes(content) for name, content in files.items()}


def _torn(entry: Entry, draw: random.Random) -> Entry:
    sectors = range(0, len(entry.data) + 1, _SECTOR)
    return dataclasses.replace(entry, data=entry.data[: draw.choice(sectors)])


def _apply(files: dict[str, bytearray], entry: Entry) -> None:
    if entry.kind == "delete":
        files.pop(entry.file, None)
        return
    content = files.setdefault(entry.file, bytearray())
    if entry.kind == "truncate":
        del content[entry.offset :]
        return
    end = entry.offset + len(entry.data)
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    content[entry.offset : end] = entry.data
