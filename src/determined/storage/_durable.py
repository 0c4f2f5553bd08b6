"""Durable files: write, hash and fsync them, with clear errors."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import mmap
import os
import shutil
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, TypeVar

from determined._os.sync import begin_writeback, sync
from determined._os.weak_file_systems import chmod, fsync
from determined.errors import CheckpointError
from determined.storage._crash_points import reach

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_READ_BYTES = 1 << 20
_WRITE_BYTES = 1 << 20
_BLOCK_BYTES = 4 << 20
_MOST_BLOCKS = 8
_LARGE_BYTES = 1 << 20
_PARALLEL_FILES = 8

T = TypeVar("T")
R = TypeVar("R")


class FileDigest(NamedTuple):
    """Size and SHA-256 of a file; `mtime_ns` tells whether it was touched since."""

    size: int
    sha256: str
    mtime_ns: int | None = None

    def still_describes(self, path: Path) -> bool:
        """Whether size and modification time of `path` are unchanged."""
        status = path.stat()
        return status.st_size == self.size and self.mtime_ns in (None, status.st_mtime_ns)


@contextlib.contextmanager
def checkpoint_errors(
    operation: str, path: Path | str, needed: int | None = None
) -> Iterator[None]:
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
            f"{text}. Check the permissions, or choose another place with "
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


class _Block:
    """A piece of a file: filled first, then written and hashed at the same time."""

    def __init__(self) -> None:
        try:
            memory = mmap.mmap(-1, _BLOCK_BYTES)  # costs nothing until it is used
        except OSError as error:  # how mmap reports a lack of memory
            raise MemoryError(
                f"Out of memory: cannot allocate {_BLOCK_BYTES} bytes to write a file."
            ) from error
        self._memory = memoryview(memory)
        self.hashed: Future[None] | None = None
        self.filled = 0

    @property
    def content(self) -> memoryview:
        return self._memory[: self.filled]

    @property
    def is_full(self) -> bool:
        return self.filled == _BLOCK_BYTES

    @property
    def is_free(self) -> bool:
        return self.hashed is None or self.hashed.done()

    def fill(self, data: memoryview) -> int:
        """Take as much of `data` as fits, and say how much that was."""
        count = min(len(data), _BLOCK_BYTES - self.filled)
        _copy(self._memory[self.filled : self.filled + count], data[:count])
        self.filled += count
        return count

    def clear(self) -> None:
        """Make ready to be filled again, once the content is hashed."""
        if self.hashed is not None:
            self.hashed.result()
        self.hashed, self.filled = None, 0


def _copy(target: memoryview, source: memoryview) -> None:
    """Copy bytes; many of them without keeping other threads from running."""
    if len(source) < _LARGE_BYTES:
        target[:] = source
        return
    import numpy as np  # whoever has large pieces has loaded it anyway

    np.copyto(np.frombuffer(target, np.uint8), np.frombuffer(source, np.uint8))


class HashingFile(io.BufferedIOBase, BinaryIO):
    """A new file to write into; knows its size and SHA-256 once it is closed, and is then on disk.

    A helper thread hashes while this one writes, and the disk begins to write at once, so that
    neither costs much time of its own. Leaving a `with` block by an exception closes the file
    without waiting for the disk.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._hash = hashlib.sha256()
        self._size = 0
        self._block = _Block()
        self._others: deque[_Block] = deque()  # in the order in which they are hashed
        self._hasher: ThreadPoolExecutor | None = None
        self._digest: FileDigest | None = None
        self._failure: CheckpointError | None = None
        self._descriptor = -1
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with checkpoint_errors("create", self._path):
            self._descriptor = os.open(self._path, flags, 0o666)

    @property
    def digest(self) -> FileDigest:
        """What was written; only after `close`."""
        if self._digest is None:
            raise ValueError(f"{self._path} has not been written completely: close the file first.")
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
        return self._size + self._block.filled

    def write(self, data: ReadableBuffer) -> int:
        if self._descriptor < 0:
            raise ValueError(f"{self._path} is closed.")
        if self._failure is not None:
            raise self._failure
        view = memoryview(data)
        if view.nbytes:  # an empty view cannot be cast
            view = view.cast("B")
        done = 0
        while done < view.nbytes:
            done += self._block.fill(view[done:])
            if self._block.is_full:
                self._write_block(view.nbytes - done)
        return done

    def flush(self) -> None:
        """Write and hash what the current block holds."""
        if self._block.filled:
            self._write_block()

    def _write_block(self, more: int = 0) -> None:
        """Write and hash the current block, and continue with another one; `more` is to come."""
        block = self._block
        if self._hasher is None and not block.is_full:
            self._hash.update(block.content)
        else:
            block.hashed = self._begin_hash(block.content)
        begin = self._size
        self._write_all(block.content, more)
        if block.is_full:
            begin_writeback(self._descriptor, begin, block.filled)
        self._others.append(block)
        is_new = not self._others[0].is_free and len(self._others) < _MOST_BLOCKS
        self._block = _Block() if is_new else self._others.popleft()
        self._block.clear()

    def _begin_hash(self, content: memoryview) -> Future[None] | None:
        """Hash in the helper thread, after everything submitted before."""
        if self._hasher is None:
            self._hasher = ThreadPoolExecutor(1, thread_name_prefix="det-hash")
        try:
            return self._hasher.submit(self._hash.update, content)
        except RuntimeError:  # no new work is accepted while the interpreter shuts down
            self._hasher.shutdown()
            self._hash.update(content)
            return None

    def _write_all(self, content: memoryview, more: int) -> None:
        done = 0
        try:
            while done < len(content):
                with checkpoint_errors("write to", self._path, len(content) - done + more):
                    # Larger pieces make Linux look for larger pages, which can take longer than
                    # all the rest.
                    written = os.write(self._descriptor, content[done : done + _WRITE_BYTES])
                done += written
                self._size += written
                reach("mid_write")
        except CheckpointError as failure:
            self._failure = failure
            raise

    def close(self) -> None:
        if self._descriptor < 0:
            return
        try:
            if self._failure is not None:
                raise self._failure
            self.flush()
            reach("before_fsync")
            with checkpoint_errors("flush to disk", self._path, self._size):
                fsync(self._descriptor, self._path)
            if self._hasher is not None:
                self._hasher.shutdown()
            mtime_ns = os.fstat(self._descriptor).st_mtime_ns
            self._digest = FileDigest(self._size, self._hash.hexdigest(), mtime_ns)
        finally:
            self._abandon()

    def _abandon(self) -> None:
        self._block.filled = 0
        descriptor, self._descriptor = self._descriptor, -1
        if self._hasher is not None:
            self._hasher.shutdown(cancel_futures=True)
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
        # Writers such as torch's fail again while they clean up, which hides the cause.
        if self._failure is not None and error is not self._failure:
            raise self._failure

    def __del__(self) -> None:
        # A file that was not closed is incomplete: never fsync from the garbage collector.
        if getattr(self, "_descriptor", -1) >= 0:
            self._abandon()


def write_file(path: Path, data: bytes) -> FileDigest:
    """Write `data` as the file `path`, durably."""
    with HashingFile(path) as file:
        file.write(data)
    return file.digest


def read_blocks(path: Path) -> Iterator[memoryview]:
    """Yield the content of a file in blocks that are valid until the next one."""
    buffer = bytearray(_READ_BYTES)
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            yield view[:count]


def digest_file(path: Path, *, sync: bool = False) -> FileDigest:
    """Read a file once for its digest; with `sync`, also wait until it is on disk."""
    digest = hashlib.sha256()
    size = 0
    with checkpoint_errors("read", path):
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
    with checkpoint_errors("set the permissions of", target):
        chmod(target, stat.S_IMODE(source.stat().st_mode), target)
    return file.digest


def sync_path(path: Path, size: int | None = None) -> None:
    """Wait until a file, or the list of names in a directory, is on disk."""
    reach("before_fsync")
    with checkpoint_errors("flush to disk", path, size):
        sync(path)


def sync_names_above(folder: Path) -> None:
    """Wait until the directories above a folder are on disk, whoever created them."""
    device = folder.stat().st_dev
    for parent in folder.resolve().parents:
        if parent.stat().st_dev != device:
            return
        with contextlib.suppress(PermissionError):  # a directory that we may not read is not ours
            sync(parent)


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
