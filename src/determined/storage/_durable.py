"""Bytes that survive a crash: write, hash and fsync files, and say clearly what went wrong."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, TypeVar

from determined.errors import CheckpointError
from determined.storage._crash_points import reach

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_BUFFER_BYTES = 1 << 20
_WRITE_BYTES = 32 << 20
_PARALLEL_FILES = 8

T = TypeVar("T")
R = TypeVar("R")


class FileDigest(NamedTuple):
    """Size and SHA-256 of a file; `mtime_ns` tells whether it was touched since."""

    size: int
    sha256: str
    mtime_ns: int | None = None

    def still_describes(self, path: Path) -> bool:
        """Whether size and modification time of `path` are what they were."""
        status = path.stat()
        return status.st_size == self.size and self.mtime_ns in (None, status.st_mtime_ns)


@contextlib.contextmanager
def explained(operation: str, path: Path | str, needed: int | None = None) -> Iterator[None]:
    """Turn an OSError of the body into a CheckpointError that says what to do next."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(_explanation(error, operation, Path(path), needed)) from error


def _explanation(error: OSError, operation: str, path: Path, needed: int | None) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    text = f"Cannot {operation} {path}: {reason}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        needs = f"{needed:,} bytes are needed, " if needed is not None else ""
        return (
            f"{text}; {needs}{_free_bytes(path):,} are free. Older checkpoints are untouched. "
            "Free some space, or choose another place with `checkpoint_storage`."
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return (
            f"{text}. Check who may write there, or choose another place with "
            "`checkpoint_storage` or DET_STORAGE."
        )
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):
        return f"{text}. Is the storage still mounted, and has nothing else removed files from it?"
    return f"{text}."


def _free_bytes(path: Path) -> int:
    for folder in (path, *path.parents):
        with contextlib.suppress(OSError):
            return shutil.disk_usage(folder).free
    return 0


class HashingFile(io.BufferedIOBase, BinaryIO):
    """A new file to write into; knows its size and SHA-256 once it is closed, and is then on disk.

    A helper thread hashes each block while the block is written, so the hash costs no time of its
    own. Leaving a `with` block by an exception closes the file without waiting for the disk.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._hash = hashlib.sha256()
        self._size = 0
        self._buffer = bytearray()
        self._hasher: ThreadPoolExecutor | None = None
        self._digest: FileDigest | None = None
        self._failure: CheckpointError | None = None
        self._descriptor = -1
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with explained("create", self._path):
            self._descriptor = os.open(self._path, flags, 0o666)

    @property
    def digest(self) -> FileDigest:
        """What was written; only after `close`."""
        if self._digest is None:
            raise ValueError(f"{self._path} is not written completely: close the file first.")
        return self._digest

    @property
    def name(self) -> str:
        return str(self._path)

    @property
    def mode(self) -> str:
        return "wb"

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size + len(self._buffer)

    def write(self, data: ReadableBuffer) -> int:
        if self._descriptor < 0:
            raise ValueError(f"{self._path} is closed.")
        if self._failure is not None:
            raise self._failure
        view = memoryview(data)
        if not view.nbytes:
            return 0
        view = view.cast("B")
        if len(view) < _BUFFER_BYTES:
            self._buffer += view
            if len(self._buffer) >= _BUFFER_BYTES:
                self.flush()
        else:
            self.flush()
            self._emit(view)
        return len(view)

    def flush(self) -> None:
        if self._buffer:
            block, self._buffer = self._buffer, bytearray()
            self._emit(memoryview(block))

    def _emit(self, block: memoryview) -> None:
        hashed = self._hash_beside(block)
        try:
            self._write_all(block)
        except CheckpointError as failure:
            self._failure = failure
            raise
        finally:
            if hashed is not None:
                hashed.result()

    def _hash_beside(self, block: memoryview) -> Future[None] | None:
        if len(block) >= _BUFFER_BYTES:
            if self._hasher is None:
                self._hasher = ThreadPoolExecutor(1, thread_name_prefix="det-hash")
            # No new work is accepted while the interpreter shuts down: hash here then.
            with contextlib.suppress(RuntimeError):
                return self._hasher.submit(self._hash.update, block)
        self._hash.update(block)
        return None

    def _write_all(self, block: memoryview) -> None:
        done = 0
        while done < len(block):
            with explained("write to", self._path, len(block) - done):
                written = os.write(self._descriptor, block[done : done + _WRITE_BYTES])
            done += written
            self._size += written
            reach("mid_write")

    def close(self) -> None:
        if self._descriptor < 0:
            return
        try:
            if self._failure is not None:
                raise self._failure
            self.flush()
            reach("before_fsync")
            with explained("flush to disk", self._path, self._size):
                os.fsync(self._descriptor)
            mtime_ns = os.fstat(self._descriptor).st_mtime_ns
            self._digest = FileDigest(self._size, self._hash.hexdigest(), mtime_ns)
        finally:
            self._abandon()

    def _abandon(self) -> None:
        self._buffer.clear()
        descriptor, self._descriptor = self._descriptor, -1
        if self._hasher is not None:
            self._hasher.shutdown()
        if descriptor >= 0:
            os.close(descriptor)
        super().close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
            return
        self._abandon()
        # Writers such as torch's fail again while they clean up, and so hide the reason.
        if self._failure is not None and error is not self._failure:
            raise self._failure

    def __del__(self) -> None:
        # A file that nobody closed is not finished: never fsync from the garbage collector.
        if getattr(self, "_descriptor", -1) >= 0:
            self._abandon()


def write_file(path: Path, data: bytes) -> FileDigest:
    """Write `data` as the file `path`, durably."""
    with HashingFile(path) as file:
        file.write(data)
    return file.digest


def read_blocks(path: Path) -> Iterator[memoryview]:
    """Yield the content of a file in blocks that are valid until the next one."""
    buffer = bytearray(_BUFFER_BYTES)
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            yield view[:count]


def digest_file(path: Path, *, sync: bool = False) -> FileDigest:
    """Read a file once for its digest; with `sync`, also wait until it is on disk."""
    digest = hashlib.sha256()
    size = 0
    with explained("read", path):
        mtime_ns = path.stat().st_mtime_ns
        for block in read_blocks(path):
            digest.update(block)
            size += len(block)
    if sync:
        sync_path(path, size)
    return FileDigest(size, digest.hexdigest(), mtime_ns)


def copy_file(source: Path, target: Path) -> FileDigest:
    """Copy content and permission bits, durably, and return the digest of what was copied."""
    with HashingFile(target) as file:
        for block in read_blocks(source):
            file.write(block)
    with explained("set the permissions of", target):
        shutil.copymode(source, target)
    return file.digest


def sync_path(path: Path, size: int | None = None) -> None:
    """Wait until a file, or the list of names in a directory, is on disk."""
    reach("before_fsync")
    with explained("flush to disk", path, size):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def for_each(action: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Run `action` on all items, several at a time; the first error ends it and is raised."""
    work = list(items)
    if len(work) < 2:
        return [action(item) for item in work]
    with ThreadPoolExecutor(min(_PARALLEL_FILES, len(work))) as pool:
        futures = [pool.submit(action, item) for item in work]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
