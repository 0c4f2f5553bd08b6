"""Copy the user's code into a checkpoint: what is needed to load it, and little else.

`copy_user_code` takes all files, an archive for checkpoints source only (see `source_files.py`).
Left out of both: what the built-in rules and `.detignore` files name (gitignore syntax; a nested
file rules its own directory and overrides those above), directories that the caller excludes (the
checkpoint store, TensorBoard files), other checkpoints, virtual environments and conda's, special
files, and what cannot be read. From the home and the temporary directory only those folders are
taken that the program has loaded modules from. When the rest is larger than the cap, the largest
files go first; Python files always stay.
"""

from __future__ import annotations

import functools
import io
import logging
import os
import shutil
import stat
import sys
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from determined._code.ignore_rules import IGNORE_FILE, Rules, read_root_rules
from determined._code.source_files import INCLUDE_FILE, source_rule
from determined._code.trial_code import is_shared_folder
from determined._contracts.checkpoint_layout import LOAD_DATA, MANIFEST
from determined._os.weak_file_systems import chmod

logger = logging.getLogger("determined")

SIZE_VARIABLE = "DET_CODE_MAX_BYTES"
_DEFAULT_MAX_BYTES = 100 * 2**20


@dataclass(frozen=True)
class _File:
    path: Path
    target: Path
    size: int


def copy_user_code(source: Path, destination: Path, exclude: Iterable[Path] = ()) -> None:
    """Copy the code below `source` into a new directory `destination` with mode 0755."""
    files = _select(source, (*exclude, destination))
    _make_directory(destination)
    for file in files:
        reader = _open(file.path)
        if reader is not None:
            with reader:
                mode = stat.S_IMODE(os.fstat(reader.fileno()).st_mode)
                target = destination / file.target
                _make_directory(target.parent, destination)
                _write(reader, target, mode)


def archive_user_code(source: Path, archive: IO[bytes], exclude: Iterable[Path] = ()) -> None:
    """Write the source files below `source` into a file, for `unpack_user_code`."""
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for file in _select(source, exclude, only_source=True):
            reader = _open(file.path)
            if reader is not None:
                with reader:
                    content = reader.read()  # at once: it may be growing
                    entry = tarfile.TarInfo(str(file.target))
                    entry.size = len(content)
                    status = os.fstat(reader.fileno())
                    entry.mode, entry.mtime = stat.S_IMODE(status.st_mode), int(status.st_mtime)
                    tar.addfile(entry, io.BytesIO(content))


def unpack_user_code(archive: IO[bytes], destination: Path, twin: Path | None = None) -> set[str]:
    """Make the directory `destination` with the files of the archive.

    Those that `twin`, a directory made from the same archive, still has unchanged are not written
    again, and their names returned: both names of one then stand for one file, which stays as long
    as either does.
    """
    linked = set()
    destination.mkdir()  # not those above: a storage that was unmounted must not be created again
    chmod(destination, 0o755, destination)
    archive.seek(0)
    with tarfile.open(fileobj=archive, mode="r") as tar:
        for entry in tar:
            target = destination / entry.name
            _make_directory(target.parent, destination)
            if twin is not None and _link(twin / entry.name, target, entry):
                linked.add(entry.name)
                continue
            content = tar.extractfile(entry)
            assert content is not None, "we archive files only"
            _write(content, target, entry.mode)
            os.utime(target, (entry.mtime, entry.mtime))
    return linked


def _link(twin: Path, target: Path, entry: tarfile.TarInfo) -> bool:
    try:
        status = twin.lstat()
        is_same = (status.st_size, status.st_mtime) == (entry.size, entry.mtime)
        if not is_same or stat.S_IFMT(status.st_mode) != stat.S_IFREG:
            return False
        os.link(twin, target)
    except OSError:  # gone, or a file system that cannot
        return False
    return True


def _select(source: Path, exclude: Iterable[Path], only_source: bool = False) -> list[_File]:
    source = source.resolve()
    excluded = {_real(directory) for directory in exclude}
    if is_shared_folder(source):
        excluded |= _unused_folders(source)
    root_rules = read_root_rules(source)
    files = list(_collect(source, "", root_rules, excluded, frozenset({_real(source)})))
    if only_source:
        files = _only_source(files, source)
    return _within_limit(files, source)


def _only_source(files: list[_File], source: Path) -> list[_File]:
    folders = {file.target.parent for file in files if file.target.suffix == ".py"}
    is_source = source_rule(source, set(folders))
    kept = [file for file in files if is_source(file.target, file.size)]
    if left_out := len(files) - len(kept):
        logger.info(
            "Checkpoints keep %d source files from %s and leave out %d others. List the files "
            "that loading the trial needs in %s.",
            len(kept),
            source,
            left_out,
            source / INCLUDE_FILE,
        )
    return kept


def _open(path: Path) -> IO[bytes] | None:
    try:
        return path.open("rb")
    except OSError as error:
        logger.warning("Left out of the code copy: %s (%s).", path, error)
        return None


def _write(reader: IO[bytes], target: Path, mode: int) -> None:
    with target.open("wb") as writer:
        shutil.copyfileobj(reader, writer, 2**20)
        chmod(writer.fileno(), mode, target)


def _unused_folders(directory: Path) -> set[str]:
    """Return the folders in a directory that the program has loaded no module from."""
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    loaded = [os.path.realpath(file) for file in files if isinstance(file, str)]
    with os.scandir(directory) as entries:
        folders = {_real(Path(entry.path)) for entry in entries if entry.is_dir()}
    return {f for f in folders if not any(file.startswith(f + os.sep) for file in loaded)}


def _collect(
    directory: Path, prefix: str, rules: Rules, excluded: set[str], parents: frozenset[str]
) -> Iterator[_File]:
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError as error:
        logger.warning("Left out of the code copy: %s (%s).", directory, error)
        return
    for entry in entries:
        path, relative = Path(entry.path), f"{prefix}{entry.name}"
        if entry.name in (IGNORE_FILE, INCLUDE_FILE):
            continue
        try:
            status = entry.stat()
        except OSError as error:  # a dangling link, or gone since it was listed
            logger.warning("Left out of the code copy: %s (%s).", path, error)
            continue
        if stat.S_ISDIR(status.st_mode):
            real = _real(path)
            if real in excluded or rules.ignore(f"{relative}/") or _is_never_code(path):
                continue
            if real in parents:
                logger.warning("Left out of the code copy: %s links back to %s.", path, real)
                continue
            inner = rules.read_below(path, f"{relative}/")
            yield from _collect(path, f"{relative}/", inner, excluded, parents | {real})
        elif rules.ignore(relative):
            continue
        elif not stat.S_ISREG(status.st_mode):
            logger.warning("Left out of the code copy: %s is not a regular file.", path)
        else:
            yield _File(path, Path(relative), status.st_size)


def _within_limit(files: list[_File], source: Path) -> list[_File]:
    limit = int(os.environ.get(SIZE_VARIABLE, _DEFAULT_MAX_BYTES))
    total = sum(file.size for file in files)
    if total <= limit:
        return files
    kept, left_out = total, []
    for file in sorted(files, key=lambda file: file.size, reverse=True):
        if kept <= limit:
            break
        if file.target.suffix != ".py":
            left_out.append(file)
            kept -= file.size
    _warn_size(source, total, limit, len(left_out), str(left_out[0].target) if left_out else "none")
    skipped = {file.target for file in left_out}
    return [file for file in files if file.target not in skipped]


@functools.lru_cache(maxsize=64)  # once per directory, not at every checkpoint
def _warn_size(source: Path, total: int, limit: int, count: int, largest: str) -> None:
    logger.warning(
        "The code below %s has %d bytes, over the limit of %d (%s): checkpoints leave out its %d "
        "largest files, starting with %s. List data directories in a %s file.",
        source,
        total,
        limit,
        SIZE_VARIABLE,
        count,
        largest,
        IGNORE_FILE,
    )


def _make_directory(directory: Path, root: Path | None = None) -> None:
    """Make a directory and those above it; `root`, if given, and what is above it must be there."""
    if directory == root or directory.is_dir():
        return
    if root is not None:
        _make_directory(directory.parent, root)
    directory.mkdir(parents=root is None)
    chmod(directory, 0o755, directory)


def _is_never_code(directory: Path) -> bool:
    """Recognise environments, and checkpoints of a storage that another run used."""
    is_environment = (directory / "pyvenv.cfg").is_file() or (directory / "conda-meta").is_dir()
    is_checkpoint = all((directory / n).is_file() for n in (MANIFEST, LOAD_DATA))
    return is_environment or is_checkpoint


def _real(path: Path) -> str:
    return os.path.realpath(path)
