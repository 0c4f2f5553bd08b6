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

from determined._os.direct import open_past_cache, write_past_cache
from determined._os.sync import begin_writeback, sync
from determined._os.weak_file_systems import chmod, fsync
from determined.errors import CheckpointError
from determined.storage._crash_points import reach

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_READ_BYTES = 1 << 20
_WRITE_BYTES = 1 << 20
_BLOCK_BYTES = 4 << 20  # part of the format: manifests have hashes of such blocks
_MOST_BLOCKS = 8
_HASHERS = min(4, os.cpu_count() or 1)
OF_BLOCKS = "blocks:"
_LARGE_BYTES = 1 << 20
_PARALLEL_FILES = 8

T = TypeVar("T")
R = TypeVar("R")


class FileDigest(NamedTuple):
    """Size and SHA-256 of a file; `mtime_ns` tells whether it was touched since.

    A file of more than one block is hashed by several threads: `sha256` is then `blocks:` and the
    SHA-256 of the SHA-256 of its blocks. Files of earlier releases have the plain one at any size.
    """

    size: int
    sha256: str
    mtime_ns: int | None = None

    @property
    def is_of_blocks(self) -> bool:
        """Whether it was made from the hashes of blocks."""
        return self.sha256.startswith(OF_BLOCKS)

    def still_describes(self, path: Path) -> bool:
        """Whether size and modification time of `path` are unchanged."""
        status = path.stat()
        return status.st_size == self.size and self.mtime_ns in (None, status.st_mtime_ns)


def _joined(hashes: list[bytes]) -> str:
    """Return the SHA-256 of a file from those of its blocks."""
    if len(hashes) == 1:
        return hashes[0].hex()
    return OF_BLOCKS + hashlib.sha256(b"".join(hashes)).hexdigest()


def digest_bytes(data: bytes, like: FileDigest | None = None) -> FileDigest:
    """Return the digest of a file with this content; of the same kind as `like`."""
    if like is not None and not like.is_of_blocks:
        return FileDigest(len(data), hashlib.sha256(data).hexdigest())
    view = memoryview(data)
    blocks = [view[at : at + _BLOCK_BYTES] for at in range(0, len(view), _BLOCK_BYTES)]
    return FileDigest(len(data), _joined([hashlib.sha256(b).digest() for b in blocks or [view]]))


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
        self.hashed: Future[bytes] | None = None
        self.stored: Future[None] | None = None
        self.filled = 0
        self.written = 0

    @property
    def content(self) -> memoryview:
        return self._memory[: self.filled]

    @property
    def unwritten(self) -> memoryview:
        return self._memory[self.written : self.filled]

    @property
    def is_full(self) -> bool:
        return self.filled == _BLOCK_BYTES

    @property
    def is_free(self) -> bool:
        return all(work is None or work.done() for work in (self.hashed, self.stored))

    def fill(self, data: memoryview) -> int:
        """Take as much of `data` as fits, and say how much that was."""
        count = min(len(data), _BLOCK_BYTES - self.filled)
        _copy(self._memory[self.filled : self.filled + count], data[:count])
        self.filled += count
        return count

    def clear(self) -> None:
        """Make ready to be filled again, once the content is written and hashed."""
        if self.stored is not None:
            self.stored.result()
        if self.hashed is not None:
            self.hashed.result()
        self.hashed, self.stored, self.filled, self.written = None, None, 0, 0


def _copy(target: memoryview, source: memoryview) -> None:
    """Copy bytes; many of them without keeping other threads from running."""
    if len(source) < _LARGE_BYTES:
        target[:] = source
        return
    import numpy as np  # whoever has large pieces has loaded it anyway

    np.copyto(np.frombuffer(target, np.uint8), np.frombuffer(source, np.uint8))


class HashingFile(io.BufferedIOBase, BinaryIO):
    """A new file to write into; knows its size and SHA-256 once it is closed, and is then on disk.

    Helper threads hash while this one writes, and the disk begins to write at once, so that neither
    costs much time of its own. Leaving a `with` block by an exception closes the file without
    waiting for the disk.

    Args:
        path: where; a file that exists there is replaced.
        past_cache: hand large files to the disk without a copy in the system's cache, where that is
            possible. It saves a core most of the work of writing, and costs whoever reads the file
            soon.
    """

    def __init__(self, path: str | os.PathLike[str], *, past_cache: bool = False) -> None:
        self._path = Path(path)
        self._size = 0
        self._past_cache = past_cache
        self._direct: int | None = None
        self._block = _Block()
        self._others: deque[_Block] = deque()  # in the order in which they are hashed
        self._hashes: list[Future[bytes]] = []
        self._helpers: ThreadPoolExecutor | None = None
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
        return self._size + len(self._block.unwritten)

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
        """Write what the current block holds; it is hashed when it is full."""
        for block in self._others:
            self._wait_for(block)
        self._write_all(self._block, 0)

    def _write_block(self, more: int) -> None:
        """Write and hash the current block, and continue with another one; `more` is to come."""
        block, begin = self._block, self._size
        if block.written == 0 and self._opens_directly():
            self._size += block.filled
            block.written = block.filled
            block.stored = self._begin(lambda: self._write_directly(block.content, begin, more))
            block.hashed = self._begin(lambda: _sha256(block.content))
        else:
            block.hashed = self._begin(lambda: _sha256(block.content))
            self._write_all(block, more)
            begin_writeback(self._descriptor, begin, self._size - begin)
        self._hashes.append(block.hashed)
        self._others.append(block)
        is_new = not self._others[0].is_free and len(self._others) < _MOST_BLOCKS
        self._block = _Block() if is_new else self._others.popleft()
        self._wait_for(self._block)
        self._block.clear()

    def _wait_for(self, block: _Block) -> None:
        try:
            if block.stored is not None:
                block.stored.result()
        except CheckpointError as failure:
            self._failure = failure
            raise

    def _begin(self, work: Callable[[], R]) -> Future[R]:
        """Do something in a helper thread."""
        if self._helpers is None:
            self._helpers = ThreadPoolExecutor(_HASHERS + 1, thread_name_prefix="det-hash")
        try:
            return self._helpers.submit(work)
        except RuntimeError:  # no new work is accepted while the interpreter shuts down
            done: Future[R] = Future()
            done.set_result(work())
            return done

    def _opens_directly(self) -> bool:
        if self._direct is None:
            self._direct = open_past_cache(self._path) if self._past_cache else -1
        return self._direct >= 0

    def _write_directly(self, content: memoryview, offset: int, more: int) -> None:
        assert self._direct is not None
        done = write_past_cache(self._direct, content, offset)
        reach("mid_write")
        while done < len(content):  # the ordinary way works everywhere, and says why if it does not
            with checkpoint_errors("write to", self._path, len(content) - done + more):
                piece = content[done : done + _WRITE_BYTES]
                done += os.pwrite(self._descriptor, piece, offset + done)

    def _write_all(self, block: _Block, more: int) -> None:
        content, done = block.unwritten, 0
        if self._direct is not None and self._direct >= 0 and len(content):
            os.lseek(self._descriptor, self._size, os.SEEK_SET)  # others wrote what comes before
        try:
            while done < len(content):
                with checkpoint_errors("write to", self._path, len(content) - done + more):
                    # Larger pieces make Linux look for larger pages, which can take longer than
                    # all the rest.
                    piece = content[done : done + _WRITE_BYTES]
                    written = os.write(self._descriptor, piece)
                done += written
                block.written += written
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
            hashes = [future.result() for future in self._hashes]
            if self._block.filled or not hashes:
                hashes.append(_sha256(self._block.content))
            mtime_ns = os.fstat(self._descriptor).st_mtime_ns
            self._digest = FileDigest(self._size, _joined(hashes), mtime_ns)
        finally:
            self._abandon()

    def _abandon(self) -> None:
        self._block.filled = 0
        descriptor, self._descriptor = self._descriptor, -1
        if self._helpers is not None:
            self._helpers.shutdown(cancel_futures=True)
        for opened in (descriptor, -1 if self._direct is None else self._direct):
            if opened >= 0:
                os.close(opened)
        self._direct = -1
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


def _sha256(content: memoryview) -> bytes:
    return hashlib.sha256(content).digest()


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


def digest_file(path: Path, *, sync: bool = False, like: FileDigest | None = None) -> FileDigest:
    """Read a file once for its digest, of the same kind as `like`.

    With `sync`, also wait until it is on disk.
    """
    with checkpoint_errors("read", path):
        status = path.stat()
        if status.st_size <= _BLOCK_BYTES or (like is not None and not like.is_of_blocks):
            size, sha256 = _digest_at_once(path)
        else:
            size, sha256 = _digest_blocks(path)
    if sync:
        sync_path(path, size)
    return FileDigest(size, sha256, status.st_mtime_ns)


def _digest_at_once(path: Path) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    for block in read_blocks(path):
        digest.update(block)
        size += len(block)
    return size, digest.hexdigest()


def _digest_blocks(path: Path) -> tuple[int, str]:
    """Read and hash the blocks of a file in several threads."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:

        def digest(number: int) -> tuple[int, bytes]:
            state, end = hashlib.sha256(), (number + 1) * _BLOCK_BYTES
            at = start = number * _BLOCK_BYTES
            while at < end and (piece := os.pread(descriptor, min(_READ_BYTES, end - at), at)):
                state.update(piece)
                at += len(piece)
            return at - start, state.digest()

        count = -(-os.fstat(descriptor).st_size // _BLOCK_BYTES)
        with ThreadPoolExecutor(_HASHERS, thread_name_prefix="det-hash") as pool:
            blocks = list(pool.map(digest, range(count)))
    finally:
        os.close(descriptor)
    return sum(size for size, _ in blocks), _joined([digest for _, digest in blocks])


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
