"""Images, texts and histograms in the event files of a folder, found once and read when asked for.

Only places in files are kept, and no more than a limit: a value is read, checked and decoded when
somebody looks at it. Files may grow while this is used, and may have been written to do harm.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from determined._os.regular_file import open_regular
from determined.tensorboard._reading import (
    Place,
    Value,
    end_of,
    event_files,
    parse_event,
    places,
    read_record,
)
from determined.tensorboard._values import kind_of

MOST_ENTRIES = 20_000
MOST_PIXELS = 4096 * 4096
_MOST_FILES = 200
_MOST_FOLDERS = 1_000
_MOST_BYTES_AT_ONCE = 256 << 20
KINDS = ("image", "text", "histogram")


class MediaKey(NamedTuple):
    """What belongs together: values of one tag in one folder."""

    kind: str
    folder: str
    tag: str


@dataclass(frozen=True)
class Entry:
    """Where a value is."""

    step: int
    time: float
    path: Path
    place: Place
    number: int


class MediaIndex:
    """The values in the event files below a folder, by tag and step."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._guard = threading.Lock()
        self._read_up_to: dict[Path, int] = {}
        self._found: dict[MediaKey, list[Entry]] = {}
        self._num_entries = 0
        self.is_complete = False
        """Whether all files were read to their end; otherwise `refresh` goes on."""
        self.is_full = False
        """Whether there are more values than are kept."""

    def refresh(self, most_bytes: int = _MOST_BYTES_AT_ONCE) -> None:
        """Find what is new, as far as `most_bytes` of records go."""
        with self._guard:
            left = most_bytes
            self.is_complete = True
            for path in self._files():
                left = self._read(path, left)
                if left <= 0:
                    self.is_complete = False
                    return

    def series(self) -> dict[MediaKey, list[Entry]]:
        """All that was found, each tag by step."""
        with self._guard:
            return {
                key: sorted(entries, key=lambda entry: (entry.step, entry.time))
                for key, entries in sorted(self._found.items())
            }

    def find(self, key: MediaKey, step: int) -> Entry | None:
        """The newest value of a tag at a step."""
        with self._guard:
            fitting = [entry for entry in self._found.get(key, ()) if entry.step == step]
        return max(fitting, key=lambda entry: entry.time, default=None)

    def _files(self) -> Iterator[Path]:
        num_files = 0
        for num_folders, (folder, folders, _) in enumerate(os.walk(self._folder)):
            folders.sort()
            for path in event_files(Path(folder)):
                num_files += 1
                if num_files > _MOST_FILES or num_folders > _MOST_FOLDERS:
                    self.is_full = True
                    return
                yield path

    def _read(self, path: Path, left: int) -> int:
        try:
            with open_regular(path) as file:
                for place in places(file, self._read_up_to.get(path, 0)):
                    left -= min(place.length, 1 << 20) + 16
                    self._add(path, file, place)
                    self._read_up_to[path] = end_of(place)
                    if left <= 0:
                        break
        except OSError:
            pass  # gone, or another user's
        return left

    def _add(self, path: Path, file: BinaryIO, place: Place) -> None:
        if self._num_entries >= MOST_ENTRIES:
            self.is_full = True
            return
        content = read_record(file, place, check=False)  # checked when it is shown
        event = None if content is None else parse_event(content)
        if event is None:
            return
        folder = os.path.relpath(path.parent, self._folder)
        for number, value in enumerate(event.values):
            kind = kind_of(value)
            if kind in KINDS and self._num_entries < MOST_ENTRIES:
                key = MediaKey(str(kind), "" if folder == "." else folder, value.tag)
                entry = Entry(event.step, event.time, path, place, number)
                self._found.setdefault(key, []).append(entry)
                self._num_entries += 1


def read_value(entry: Entry) -> Value | None:
    """The value at a place; None if it is damaged or gone."""
    try:
        with open_regular(entry.path) as file:
            content = read_record(file, entry.place)
    except OSError:
        return None
    event = None if content is None else parse_event(content)
    if event is None or entry.number >= len(event.values):
        return None
    return event.values[entry.number]


class ImageFacts(NamedTuple):
    """What the first bytes of an image say."""

    media_type: str
    width: int
    height: int


def facts_of(image: bytes) -> ImageFacts | None:
    """The type and size of a PNG, GIF or JPEG image; None if it is none of them."""
    if image.startswith(b"\x89PNG\r\n\x1a\n") and image[12:16] == b"IHDR" and len(image) >= 24:
        return ImageFacts("image/png", *struct.unpack(">II", image[16:24]))
    if image[:6] in (b"GIF87a", b"GIF89a") and len(image) >= 10:
        return ImageFacts("image/gif", *struct.unpack("<HH", image[6:10]))
    if image.startswith(b"\xff\xd8\xff"):
        return _facts_of_jpeg(image)
    return None


def _facts_of_jpeg(image: bytes) -> ImageFacts | None:
    position = 2
    while position + 9 <= len(image) and image[position] == 0xFF:
        marker, length = (
            image[position + 1],
            int.from_bytes(image[position + 2 : position + 4], "big"),
        )
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", image[position + 5 : position + 9])
            return ImageFacts("image/jpeg", width, height)
        position += 2 + max(length, 2)
    return None
