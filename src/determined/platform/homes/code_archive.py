"""Snapshots as archives: the same bytes for the same code; unpacking trusts nothing."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import os
import shutil
import stat
import tarfile
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from determined._os.weak_file_systems import chmod
from determined.platform.homes.snapshot import Snapshot

_MOST_ENTRIES = 1_000_000
_MOST_BYTES = 16 << 30
_MOST_HEAD_BYTES = 1 << 20  # of one entry: names of a few thousand characters, and a time


class UnsafeArchiveError(ValueError):
    """An archive holds something that must not be unpacked."""


def write_archive(snapshot: Snapshot, file: IO[bytes]) -> None:
    """Write a snapshot as a gzipped tar file; equal snapshots give equal bytes."""
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed,
        tarfile.open(
            fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT, errors="surrogateescape"
        ) as tar,
    ):
        for path in _sorted_paths(snapshot.tree):
            name = str(path.relative_to(snapshot.tree))
            status = path.lstat()
            entry = tarfile.TarInfo(name)
            entry.mode = 0o755 if status.st_mode & 0o100 else 0o644
            if stat.S_ISLNK(status.st_mode):
                entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(path)  # noqa: PTH115
                tar.addfile(entry)
            elif stat.S_ISDIR(status.st_mode):
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
            else:
                entry.size = status.st_size
                with path.open("rb") as content:
                    tar.addfile(entry, content)


def extract_archive(file: IO[bytes], target: Path) -> None:
    """Unpack a gzipped archive into the new directory `target`, or raise UnsafeArchiveError.

    Refused are names and links that lead out of `target`, devices and other special files, and
    more data than code can be, before a file that is too large is written or a header that is
    too large is read. Links are created last, so nothing is ever written through one.
    """
    stage = target.with_name(f".{target.name}.{uuid.uuid4()}")
    stage.mkdir(mode=0o700)
    try:
        metered = _Metered(file)
        with metered.within_a_head():
            tar = tarfile.open(fileobj=metered, mode="r|", errors="surrogateescape")  # noqa: SIM115
        with tar:
            entries = _bounded(tar, metered)
            links = [link for entry in entries if (link := _extract(tar, entry, stage)) is not None]
        for path, destination in links:
            path.symlink_to(destination)
        for path, destination in links:
            _check_link(path, destination, stage)
        stage.rename(target)
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise UnsafeArchiveError(f"This is not a code archive: {error}.") from error
    finally:
        shutil.rmtree(stage, ignore_errors=True)


class _Metered(gzip.GzipFile):
    """What is in a gzipped file; the part between two entries is limited."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(fileobj=file, mode="rb")
        self._left: int | None = None

    @contextlib.contextmanager
    def within_a_head(self) -> Iterator[None]:
        """Whatever is read in the `with` block comes before the content of an entry."""
        self._left = _MOST_HEAD_BYTES
        try:
            yield
        finally:
            self._left = None

    def read(self, size: int | None = -1) -> bytes:
        content = super().read(size)
        if self._left is not None:
            self._left -= len(content)
            if self._left < 0:
                raise UnsafeArchiveError(
                    f"Before an entry there are more than {_MOST_HEAD_BYTES:,} bytes."
                )
        return content


def _bounded(tar: tarfile.TarFile, metered: _Metered) -> Iterator[tarfile.TarInfo]:
    """Yield the entries for as long as there are not too many, and they are not too large."""
    num_bytes = 0
    for number in itertools.count(1):
        with metered.within_a_head():
            entry = tar.next()
        if entry is None:
            return
        # tarfile keeps all of them in memory, and their headers may be large.
        tar.members.clear()  # type: ignore[attr-defined]  # not declared there
        num_bytes += entry.size
        if number > _MOST_ENTRIES or num_bytes > _MOST_BYTES:
            raise UnsafeArchiveError(
                f"At {entry.name!r} there are {number:,} entries with {num_bytes:,} bytes; the "
                f"limit is {_MOST_ENTRIES:,} with {_MOST_BYTES:,}."
            )
        yield entry


def _extract(tar: tarfile.TarFile, entry: tarfile.TarInfo, stage: Path) -> tuple[Path, str] | None:
    path = stage / _safe_name(entry.name)
    if entry.isdir():
        path.mkdir(parents=True, exist_ok=True)
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    if entry.issym():
        return path, entry.linkname
    if not entry.isreg():
        raise UnsafeArchiveError(f"{entry.name!r} is neither a file nor a directory nor a link.")
    content = tar.extractfile(entry) or io.BytesIO()
    descriptor = os.open(
        path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
    )
    with content, os.fdopen(descriptor, "wb") as copy:
        shutil.copyfileobj(content, copy)
        chmod(descriptor, 0o755 if entry.mode & 0o100 else 0o644, path)
    return None


def _safe_name(name: str) -> str:
    parts = name.split("/")
    if name.startswith("/") or ".." in parts or "\0" in name or not name:
        raise UnsafeArchiveError(f"The name {name!r} points outside the archive.")
    return name


def _check_link(path: Path, destination: str, stage: Path) -> None:
    real = os.path.realpath(path)
    root = os.path.realpath(stage)
    is_inside = real == root or real.startswith(root + os.sep)
    if destination.startswith("/") or not is_inside:
        raise UnsafeArchiveError(
            f"The link {path.relative_to(stage)} points outside the archive, to {destination}."
        )


def _sorted_paths(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.iterdir(), key=os.fsencode):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _sorted_paths(path)
