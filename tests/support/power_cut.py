"""A disk that lies: log what a process does to its files, then show what a power cut may leave.

Until a file is flushed (fsync), its content may be lost, cut anywhere or zeros; until a directory
is flushed, any of the names created, moved and removed in it may be as they were before.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import os
import random
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Entry = tuple[Any, ...]


class Recorder:
    """Logs changes below a folder, from now until the process ends: nothing can remove the hook.

    Entries are `create`, `mkdir`, `move`, `remove`, `sync` (with the content of a file), and
    `acknowledge` when the log of `determined.core` says that a checkpoint is saved.
    """

    def __init__(self, folder: Path) -> None:
        self.entries: list[Entry] = []
        self._folder = str(folder)
        self._busy = threading.local()
        self._real_fsync = os.fsync
        os.fsync = self._fsync  # type: ignore[assignment]  # descriptors are all we flush
        sys.addaudithook(self._see)
        handler = logging.Handler()
        handler.emit = self._read_log  # type: ignore[method-assign]  # all that it is for
        logging.getLogger("determined.core").addHandler(handler)
        logging.getLogger("determined.core").setLevel(logging.INFO)

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        see: Callable[..., None] | None = _SEEN.get(event)
        if see is not None and not getattr(self._busy, "now", False):
            self._busy.now = True
            try:
                see(self, *arguments)
            finally:
                self._busy.now = False

    def _path(self, path: Any, directory: int = -1) -> str | None:
        """Return where a path is below the folder, None if it is not."""
        if isinstance(path, int):
            return None
        base = Path(f"/proc/self/fd/{directory}").readlink() if directory >= 0 else Path.cwd()
        whole = os.path.join(base, os.fsdecode(path))  # noqa: PTH118  # as it stands, unresolved
        if whole == self._folder:
            return ""
        inside = whole.startswith(self._folder + "/")
        return whole.removeprefix(self._folder + "/") if inside else None

    def _open(self, path: Any, mode: Any, flags: int) -> None:
        place = self._path(path)
        if place is not None and flags & (os.O_WRONLY | os.O_RDWR) and flags & os.O_CREAT:
            self.entries.append(("create", place))

    def _mkdir(self, path: Any, mode: int, directory: int) -> None:
        self._append("mkdir", self._path(path, directory))

    def _remove(self, path: Any, directory: int) -> None:
        self._append("remove", self._path(path, directory))

    def _move(self, source: Any, target: Any, *directories: int) -> None:
        self._append("move", self._path(source), self._path(target))

    def _append(self, kind: str, *places: str | None) -> None:
        if None not in places:
            self.entries.append((kind, *places))

    def _fsync(self, descriptor: int) -> None:
        self._real_fsync(descriptor)
        place = self._path(Path(f"/proc/self/fd/{descriptor}").readlink())
        if place is not None:
            path, content = Path(self._folder, place), None
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                content = path.read_bytes()
            self.entries.append(("sync", place, content))

    def _read_log(self, record: logging.LogRecord) -> None:
        if record.msg.startswith("Saved checkpoint"):
            assert record.args is not None
            self.entries.append(("acknowledge", record.args[0]))  # type: ignore[index]  # a tuple


_SEEN: dict[str, Callable[..., None]] = {
    "open": Recorder._open,
    "os.mkdir": Recorder._mkdir,
    "os.remove": Recorder._remove,
    "os.rmdir": Recorder._remove,
    "os.rename": Recorder._move,
}


@dataclasses.dataclass(eq=False)
class File:
    """Content that is safe, and what will be written next."""

    safe: bytes = b""
    coming: bytes = b""
    is_dirty: bool = True


@dataclasses.dataclass(eq=False)
class Folder:
    """Names that are safe, and the changes since then."""

    now: dict[str, File | Folder] = dataclasses.field(default_factory=dict)
    safe: dict[str, File | Folder] = dataclasses.field(default_factory=dict)
    changes: list[dict[str, File | Folder | None]] = dataclasses.field(default_factory=list)

    def change(self, names: dict[str, File | Folder | None]) -> None:
        _apply(self.now, names)
        self.changes.append(names)

    def flush(self) -> None:
        self.safe, self.changes = dict(self.now), []


def _apply(names: dict[str, File | Folder], change: dict[str, File | Folder | None]) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


# What is there after a power cut: path to content, None for a folder.
State = dict[str, bytes | None]


class Disk:
    """Follows a log, entry by entry; at each point `after_power_cut` tells what may be left."""

    def __init__(self, entries: list[Entry]) -> None:
        self._entries = entries
        self._root = Folder()
        self.acknowledged: list[str] = []

    def replay(self) -> Iterator[int]:
        """Do one entry after the other; yield after each that changed something."""
        for number, entry in enumerate(self._entries):
            getattr(self, f"_{entry[0]}")(number, *entry[1:])
            yield number

    def _parent(self, place: str) -> tuple[Folder, str]:
        *folders, name = place.split("/")
        node: File | Folder = self._root
        for folder in folders:
            assert isinstance(node, Folder)
            node = node.now.get(folder) or Folder()
        assert isinstance(node, Folder)
        return node, name

    def _create(self, number: int, place: str) -> None:
        folder, name = self._parent(place)
        coming = next(
            (e[2] for e in self._entries[number:] if e[0] == "sync" and e[1] == place), b""
        )
        old = folder.now.get(name)
        if isinstance(old, File):  # emptied and written again
            old.coming, old.is_dirty = coming, True
        else:
            folder.change({name: File(coming=coming)})

    def _mkdir(self, number: int, place: str) -> None:
        folder, name = self._parent(place)
        if name not in folder.now:
            folder.change({name: Folder()})

    def _remove(self, number: int, place: str) -> None:
        folder, name = self._parent(place)
        if name in folder.now:
            folder.change({name: None})

    def _move(self, number: int, source: str, target: str) -> None:
        (folder, old), (new_folder, new) = self._parent(source), self._parent(target)
        assert folder is new_folder, "a move between folders is two changes: think again"
        if old in folder.now:
            folder.change({new: folder.now[old], old: None})

    def _sync(self, number: int, place: str, content: bytes | None) -> None:
        folder, name = self._parent(place)
        node = folder.now.get(name) if place else self._root
        if isinstance(node, Folder):
            node.flush()
        elif isinstance(node, File):
            node.safe, node.is_dirty = content or b"", False

    def _acknowledge(self, number: int, storage_id: str) -> None:
        self.acknowledged.append(storage_id)

    def after_power_cut(self, draw: random.Random, draws: int) -> Iterator[State]:
        """Yield what the disk may show: the extremes, then mixtures of them."""

        def none(count: int) -> list[int]:
            return []

        def every(count: int) -> list[int]:
            return list(range(count))

        yield self._state(none, lambda file: file.safe)
        yield self._state(every, lambda file: file.safe)
        yield self._state(every, lambda file: bytes(len(file.coming)))

        def some(count: int) -> list[int]:
            if draw.random() < 0.5:  # a journal keeps the order
                return list(range(draw.randint(0, count)))
            return [number for number in range(count) if draw.random() < 0.5]

        def torn(file: File) -> bytes:
            cut = file.coming[: draw.randint(0, len(file.coming))]
            zeros = bytes(len(file.coming) - len(cut))
            return draw.choice([file.safe, cut, cut + zeros, file.coming])

        for number in range(draws):
            yield self._state(some if number % 2 else every, torn)

    def _state(self, kept: Callable[[int], list[int]], content: Callable[[File], bytes]) -> State:
        state: State = {}

        def show(folder: Folder, prefix: str) -> None:
            names = dict(folder.safe)
            for number in kept(len(folder.changes)):
                _apply(names, folder.changes[number])
            for name, node in names.items():
                if isinstance(node, Folder):
                    state[prefix + name] = None
                    show(node, f"{prefix}{name}/")
                else:
                    state[prefix + name] = content(node) if node.is_dirty else node.safe

        show(self._root, "")
        return state


def fingerprint(state: State) -> str:
    found = hashlib.sha256()
    for path, content in sorted(state.items()):
        found.update(repr((path, content)).encode())
    return found.hexdigest()


def write_state(state: State, folder: Path) -> None:
    """Make real files of a state."""
    folder.mkdir(exist_ok=True)
    for path, content in sorted(state.items()):
        if content is None:
            (folder / path).mkdir(parents=True, exist_ok=True)
        else:
            (folder / path).write_bytes(content)
