"""Code snapshots: MODEL_DIR and includes, stored once under the digest of their content.

    <root>/<digest>/tree/            the files
    <root>/<digest>/snapshot.json    what there is, and how much

Experiments with equal code share one snapshot; each run works in a private copy of it. Symbolic
links are never followed: one that leads to a file of the snapshot is kept, others are left out
with a note. `code_archive.py` turns snapshots into archives and back.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import sys
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from determined._code.ignore_rules import IGNORE_FILE, Rules, read_root_rules
from determined._os.json_file import write_json
from determined._os.sync import sync
from determined._os.weak_file_systems import chmod

_FICLONE = 0x40049409  # ioctl of Linux: share the blocks until one of the two is written to
_BLOCK_BYTES = 1 << 20
_LARGE_BYTES = 100 * 2**20
_STAGE = ".stage-"
_VERSION = 1


@dataclass(frozen=True)
class Snapshot:
    """A stored snapshot; `notes` are messages for its creator."""

    path: Path
    digest: str
    num_files: int
    num_bytes: int
    notes: tuple[str, ...] = ()

    @property
    def tree(self) -> Path:
        return self.path / "tree"


@dataclass(frozen=True)
class _Entry:
    """Something to store: a directory, a file, or a link if `target` is set."""

    source: Path
    name: str
    mode: int
    target: str | None = None

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_executable(self) -> bool:
        return bool(self.mode & 0o100)


def create_snapshot(root: Path, model_dir: Path | None, includes: Iterable[Path] = ()) -> Snapshot:
    """Store the code of an experiment below `root` and return the snapshot.

    Without MODEL_DIR there are only the includes, maybe nothing. ValueError names anything that
    cannot be part of a snapshot. Safe to call from several processes at once.
    """
    notes: list[str] = []
    entries = list(_collect(model_dir, list(includes), notes))
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _making(root):
        stage = root / f"{_STAGE}{uuid.uuid4()}"
        stage.mkdir(mode=0o700)
        try:
            digest, num_bytes = _store(entries, stage / "tree")
            num_files = sum(not entry.is_directory for entry in entries)
            snapshot = Snapshot(root / digest, digest, num_files, num_bytes)
            try:
                os.utime(snapshot.path)  # it is used again: cleaning up spares recent ones
            except FileNotFoundError:
                _publish(stage, snapshot)
        finally:
            shutil.rmtree(stage, ignore_errors=True)  # gone already if it was published
    if num_bytes > _LARGE_BYTES:
        notes.append(
            f"The code has {num_bytes / 2**20:.0f} MiB, and each run gets a copy. List data in a "
            f"{IGNORE_FILE} file and read it from its original location."
        )
    return Snapshot(snapshot.path, digest, num_files, num_bytes, tuple(notes))


def load_snapshot(root: Path, digest: str) -> Snapshot:
    """Return a stored snapshot; FileNotFoundError if there is none of this digest."""
    content = json.loads((root / digest / "snapshot.json").read_bytes())
    return Snapshot(root / digest, digest, content["num_files"], content["num_bytes"])


def working_copy(snapshot: Snapshot, target: Path) -> None:
    """Copy a snapshot to `target`, which must not exist or be empty. No file is shared with it."""
    stage = target.with_name(f".{target.name}.{uuid.uuid4()}")
    stage.mkdir(mode=0o700)
    try:
        _copy_tree(snapshot.tree, stage)
        stage.replace(target)
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        raise


def _copy_tree(source: Path, target: Path) -> None:
    with os.scandir(source) as entries:
        for entry in entries:
            copy = target / entry.name
            if entry.is_symlink():
                copy.symlink_to(os.readlink(entry.path))  # noqa: PTH115  # as it is
            elif entry.is_dir():
                copy.mkdir()
                _copy_tree(Path(entry.path), copy)
            else:
                _copy_content(
                    Path(entry.path), copy, 0o755 if entry.stat().st_mode & 0o100 else 0o644
                )


def _collect(model_dir: Path | None, includes: list[Path], notes: list[str]) -> Iterator[_Entry]:
    sources: list[tuple[Path, str]] = []  # directories whose content is taken, or single entries
    if model_dir is not None:
        if not model_dir.is_dir():
            what = "is a file" if model_dir.exists() else "does not exist"
            raise ValueError(f"MODEL_DIR must be a directory, but {model_dir} {what}.")
        sources.append((model_dir.resolve(), ""))
    for include in includes:
        if not include.exists():
            raise ValueError(f"--include {include} does not exist.")
        sources.append((include.resolve(), include.absolute().name))
    owners: dict[str, Path] = {}
    for source, prefix in sources:
        for entry in _walk_source(source, prefix, notes):
            name = entry.name.split("/", 1)[0]
            if owners.setdefault(name, source) != source:
                raise ValueError(
                    f"{owners[name]} and {source} both put {name!r} at the top of the snapshot: "
                    "rename one of them."
                )
            yield entry


def _walk_source(source: Path, prefix: str, notes: list[str]) -> Iterator[_Entry]:
    if source.is_dir():
        if prefix:
            yield _Entry(source, prefix, source.stat().st_mode)
        found = list(_walk(source, "", read_root_rules(source), notes))
        names = {entry.name for entry in found}
        for entry in found:
            if entry.target is None or _is_kept(entry, source, names, notes):
                name = f"{prefix}/{entry.name}" if prefix else entry.name
                yield _Entry(entry.source, name, entry.mode, entry.target)
    else:
        _refuse_special(source, source.stat().st_mode)
        yield _Entry(source, prefix, source.stat().st_mode)


def _walk(directory: Path, prefix: str, rules: Rules, notes: list[str]) -> Iterator[_Entry]:
    with os.scandir(directory) as scanned:
        entries = sorted(scanned, key=lambda entry: entry.name)
    for entry in entries:
        path, name = Path(entry.path), f"{prefix}{entry.name}"
        mode = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            if not rules.ignore(f"{name}/"):
                yield _Entry(path, name, mode)
                yield from _walk(path, f"{name}/", rules.read_below(path, f"{name}/"), notes)
        elif entry.name == IGNORE_FILE or rules.ignore(name):
            continue
        elif stat.S_ISLNK(mode):
            if not (entry.is_dir() and rules.ignore(f"{name}/")):
                yield _Entry(path, name, mode, os.readlink(path))  # noqa: PTH115  # as bytes are
        else:
            _refuse_special(path, mode)
            yield _Entry(path, name, mode)


def _is_kept(link: _Entry, root: Path, names: set[str], notes: list[str]) -> bool:
    """Whether a link leads to something that is in the snapshot too."""
    real = os.path.realpath(link.source)
    inside = os.path.relpath(real, root)
    if inside == "." or inside in names:
        return True
    notes.append(
        f"{link.source} is left out: it links to {real}, which is not part of the snapshot. Add "
        "it with --include, or pass its path to your code."
    )
    return False


def _refuse_special(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise ValueError(
            f"{path} is neither a file nor a directory nor a link, so it cannot be part of a "
            f"snapshot: remove it, or list it in a {IGNORE_FILE} file."
        )


def _store(entries: list[_Entry], tree: Path) -> tuple[str, int]:
    """Copy everything below `tree`; return the digest of it all and its size."""
    tree.mkdir()
    whole = hashlib.sha256()
    num_bytes = 0
    for entry in sorted(entries, key=lambda entry: os.fsencode(entry.name)):
        target = tree / entry.name
        if entry.is_directory:
            kind, content = "directory", ""
            target.mkdir()
        elif entry.target is not None:
            kind, content = "link", _relative_target(entry)
            target.symlink_to(content)
        else:
            kind = "program" if entry.is_executable else "file"
            size, content = _copy_content(
                entry.source, target, 0o755 if entry.is_executable else 0o644
            )
            num_bytes += size
        for part in (kind, entry.name, content):
            data = os.fsencode(part)
            whole.update(len(data).to_bytes(8, "little") + data)
    return whole.hexdigest(), num_bytes


def _relative_target(link: _Entry) -> str:
    """Return the target of a link relative to it: an absolute one would lead out of a copy."""
    assert link.target is not None
    if not os.path.isabs(link.target):  # noqa: PTH117  # a name, not a path of this machine
        return link.target
    return os.path.relpath(os.path.realpath(link.source), os.path.realpath(link.source.parent))


def _publish(stage: Path, snapshot: Snapshot) -> None:
    content = {key: value for key, value in asdict(snapshot).items() if key.startswith("num_")}
    write_json(stage / "snapshot.json", {"version": _VERSION, **content})
    for directory, _, names in os.walk(stage, topdown=False):
        for name in names:
            if not os.path.islink(os.path.join(directory, name)):  # noqa: PTH114, PTH118
                sync(Path(directory, name))
        sync(Path(directory))
    try:
        stage.rename(snapshot.path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return  # another process stored the same
    sync(snapshot.path.parent)


@contextlib.contextmanager
def _making(root: Path) -> Iterator[None]:
    """Share the store with other creators; the first one cleans up after killed ones."""
    descriptor = os.open(root, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for abandoned in root.glob(f"{_STAGE}*"):
                shutil.rmtree(abandoned, ignore_errors=True)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def _copy_content(source: Path, target: Path, mode: int) -> tuple[int, str]:
    """Make the file `target` with the content of `source`; return its size and SHA-256.

    Blocks are shared where the file system can do that. Links are not followed, and `target` must
    not exist.
    """
    reader = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        create = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        writer = os.open(target, create, mode)
        try:
            chmod(writer, mode, target)
            if _clone(reader, writer):
                return _copy_blocks(
                    writer, None
                )  # hash what we have: the source may change meanwhile
            return _copy_blocks(reader, writer)
        finally:
            os.close(writer)
    finally:
        os.close(reader)


def _clone(reader: int, writer: int) -> bool:
    if sys.platform != "linux":
        return False
    try:
        fcntl.ioctl(writer, _FICLONE, reader)
    except OSError:  # another file system, or one that cannot
        return False
    return True


def _copy_blocks(reader: int, writer: int | None) -> tuple[int, str]:
    digest = hashlib.sha256()
    size = 0
    while block := os.read(reader, _BLOCK_BYTES):
        digest.update(block)
        size += len(block)
        while writer is not None and block:
            block = block[os.write(writer, block) :]
    return size, digest.hexdigest()
