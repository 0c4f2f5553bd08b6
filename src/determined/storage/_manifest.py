"""What a checkpoint consists of: names, sizes and hashes, written last and checked first."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from determined._contracts.checkpoint_layout import MANIFEST, MARKERS, METADATA
from determined.errors import InvalidCheckpointException
from determined.storage._durable import OF_BLOCKS, FileDigest, digest_file, for_each

MANIFEST_NAME = MANIFEST
METADATA_NAME = METADATA
FORMAT_VERSION = 2  # 1: no hashes of blocks

_MAX_JSON_BYTES = 64 << 20
# A parsed value takes up to a hundred times the bytes of its text: this bounds the memory.
_MAX_JSON_VALUES = 2_000_000
_HEX_DIGITS = frozenset("0123456789abcdef")
_BLOCKS_KEY = "sha256_of_4MiB_blocks"


@dataclass(frozen=True)
class Contents:
    """The files of a checkpoint by relative path, and its directories (each ends in `/`)."""

    files: Mapping[str, FileDigest] = field(default_factory=dict)
    directories: frozenset[str] = frozenset()

    @property
    def resources(self) -> dict[str, int]:
        """Path to size in bytes; directories have size 0."""
        sizes = {path: digest.size for path, digest in self.files.items()}
        sizes.update(dict.fromkeys(self.directories, 0))
        return dict(sorted(sizes.items()))

    def merged_with(self, other: Contents) -> Contents:
        """Both together; the other's file wins where both have one."""
        return Contents({**self.files, **other.files}, self.directories | other.directories)


@dataclass(frozen=True)
class Manifest:
    """The table of contents of one checkpoint, and its place in the order of saves."""

    contents: Contents
    sequence: int
    steps_completed: int | None = None
    created: str = field(
        default_factory=lambda: datetime.now(timezone.utc).isoformat(timespec="seconds")
    )

    def limited_to(self, paths: Container[str]) -> Manifest:
        """Return the same manifest with only these files and directories."""
        files = {p: digest for p, digest in self.contents.files.items() if p in paths}
        folders = frozenset(p for p in self.contents.directories if p in paths)
        return replace(self, contents=Contents(files, folders))

    def to_json(self) -> bytes:
        """Return the text of `manifest.json`, files and directories sorted by name."""
        files = [
            {"path": path, "size": digest.size, **_hash_entry(digest)}
            for path, digest in sorted(self.contents.files.items())
        ]
        has_blocks = any(digest.is_of_blocks for digest in self.contents.files.values())
        document = {
            "format_version": FORMAT_VERSION if has_blocks else 1,
            "created": self.created,
            "sequence": self.sequence,
            "steps_completed": self.steps_completed,
            "directories": sorted(self.contents.directories),
            "files": files,
        }
        return json.dumps({**document, "checksum": _checksum(document)}, indent=1).encode()

    @classmethod
    def from_json(cls, text: bytes, checkpoint: str) -> Manifest:
        """Read `manifest.json` of the named checkpoint; refuse what could lead outside of it."""
        document = load_json(text, f"{MANIFEST_NAME} of checkpoint {checkpoint}")
        version = _count(document.get("format_version"))
        if version is None:
            raise _invalid(checkpoint, MANIFEST_NAME, "has no `format_version`")
        if version > FORMAT_VERSION:
            raise _invalid(
                checkpoint,
                MANIFEST_NAME,
                f"has format version {version}; this release reads up to {FORMAT_VERSION}: upgrade",
            )
        if document.pop("checksum", None) != _checksum(document):
            raise _invalid(checkpoint, MANIFEST_NAME, "is damaged: its own checksum does not match")
        sequence = _count(document.get("sequence"))
        if sequence is None:
            raise _invalid(checkpoint, MANIFEST_NAME, "has no `sequence`")
        steps = _count(document.get("steps_completed"))
        created = str(document.get("created"))
        return cls(_read_contents(document, checkpoint), sequence, steps, created)


def _hash_entry(digest: FileDigest) -> dict[str, str]:
    if digest.is_of_blocks:
        return {_BLOCKS_KEY: digest.sha256.removeprefix(OF_BLOCKS)}
    return {"sha256": digest.sha256}


def _read_contents(document: Mapping[str, Any], checkpoint: str) -> Contents:
    files: dict[str, FileDigest] = {}
    listed, folders = document.get("files"), document.get("directories", [])
    if not isinstance(listed, list) or not isinstance(folders, list):
        raise _invalid(checkpoint, MANIFEST_NAME, "has no list `files`")
    for entry in listed:
        if not isinstance(entry, dict):
            raise _invalid(
                checkpoint, MANIFEST_NAME, f"lists {str(entry)[:100]!r} instead of a file"
            )
        path, prefix = str(entry.get("path")), OF_BLOCKS if _BLOCKS_KEY in entry else ""
        sha256 = str(entry.get(_BLOCKS_KEY if prefix else "sha256"))
        if not is_inner_path(path) or path in files or path == MANIFEST_NAME:
            raise _not_allowed(checkpoint, path)
        size = _count(entry.get("size"))
        if size is None or not _is_sha256(sha256):
            raise _invalid(checkpoint, MANIFEST_NAME, f"has no size and SHA-256 for {path!r}")
        files[path] = FileDigest(size, prefix + sha256)
    for path in folders:
        if not isinstance(path, str) or not is_inner_path(path.removesuffix("/")):
            raise _not_allowed(checkpoint, path)
    return Contents(files, frozenset(folders))


def _not_allowed(checkpoint: str, path: object) -> InvalidCheckpointException:
    problem = f"lists a path that is not allowed: {str(path)[:100]!r}"
    return _invalid(checkpoint, MANIFEST_NAME, problem)


def is_inner_path(path: str) -> bool:
    """Whether `path` is relative, plain and cannot leave the folder that it is joined to."""
    try:
        name = os.fsencode(path)
    except UnicodeEncodeError:  # JSON may hold half of a character
        return False
    return (
        b"\0" not in name
        and len(name) <= 4096
        and all(part not in (b"", b".", b"..") and len(part) <= 255 for part in name.split(b"/"))
    )


def _checksum(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _count(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        return None
    return value


def _is_sha256(text: str) -> bool:
    return len(text) == 64 and _HEX_DIGITS.issuperset(text)


def _invalid(checkpoint: str, file: str, problem: str) -> InvalidCheckpointException:
    return InvalidCheckpointException(f"Checkpoint {checkpoint}: {file} {problem}.")


def load_json(text: bytes, what: str) -> dict[str, Any]:
    """Parse a JSON object of bounded size, or say what is wrong with it."""
    if len(text) > _MAX_JSON_BYTES:
        raise InvalidCheckpointException(f"{what} is larger than {_MAX_JSON_BYTES:,} bytes.")
    if sum(map(text.count, (b",", b"[", b"{"))) > _MAX_JSON_VALUES:
        raise InvalidCheckpointException(f"{what} holds more than {_MAX_JSON_VALUES:,} values.")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidCheckpointException(f"{what} is not valid JSON: {error}.") from error
    if not isinstance(document, dict):
        raise InvalidCheckpointException(f"{what} must hold a JSON object.")
    return document


def read_json_file(path: Path, what: str, limit: int = _MAX_JSON_BYTES) -> bytes | None:
    """Return the text of a small file, None if there is none; never follow a link."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InvalidCheckpointException(f"{what} cannot be read: {error.strerror}.") from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise InvalidCheckpointException(f"{what} is not a regular file.")
        if status.st_size > limit:
            raise InvalidCheckpointException(
                f"{what} is larger than {limit:,} bytes ({status.st_size:,}): it was not read."
            )
        return file.read(limit)


def read_manifest(folder: Path, checkpoint: str) -> Manifest | None:
    """Return the manifest of a checkpoint folder, None if it has none."""
    text = read_json_file(
        folder / MANIFEST_NAME, f"Checkpoint {checkpoint}: {folder / MANIFEST_NAME}"
    )
    return None if text is None else Manifest.from_json(text, checkpoint)


def walk(folder: Path, checkpoint: str) -> Iterator[tuple[str, int]]:
    """Yield (relative path, size) of everything below; links and special files are refused."""
    pending = [""]
    while pending:
        prefix = pending.pop()
        with os.scandir(folder / prefix) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                status = entry.stat(follow_symlinks=False)
                path = prefix + entry.name
                if stat.S_ISDIR(status.st_mode):
                    yield path + "/", 0
                    pending.append(path + "/")
                elif stat.S_ISREG(status.st_mode):
                    yield path, status.st_size
                else:
                    kind = "a symbolic link" if entry.is_symlink() else "a special file"
                    raise _invalid(
                        checkpoint, path, f"is {kind}, which a checkpoint may not contain"
                    )


def check_folder(folder: Path, checkpoint: str, *, hashes: bool = True) -> tuple[str, ...] | None:
    """Compare a folder with its manifest: sizes first, then (with `hashes`) SHA-256.

    Returns the files that the manifest does not know (they do no harm), or None for a checkpoint
    of another release that has no manifest and can only be recognised. Anything else raises
    InvalidCheckpointException, with the name of the file and the difference.
    """
    manifest = read_manifest(folder, checkpoint)
    sizes = dict(walk(folder, checkpoint))
    if manifest is None:
        if not any(name in sizes for name in MARKERS):
            raise InvalidCheckpointException(
                f"Checkpoint {checkpoint}: {folder} holds neither {MANIFEST_NAME} nor any of "
                f"{', '.join(MARKERS)}; it is not a checkpoint, or was never completed."
            )
        return None
    return compare(manifest, sizes, folder if hashes else None, checkpoint)


def compare(
    manifest: Manifest, sizes: Mapping[str, int], folder: Path | None, checkpoint: str
) -> tuple[str, ...]:
    """Compare sizes (and the hashes of the files in `folder`, if given) with the manifest."""
    files = manifest.contents.files
    for path, expected in files.items():
        if path not in sizes:
            raise _invalid(checkpoint, path, "is missing")
        if sizes[path] != expected.size:
            raise _invalid(
                checkpoint, path, f"has {sizes[path]:,} bytes instead of {expected.size:,}"
            )
    if folder is not None:
        paths = sorted(files, key=lambda path: -files[path].size)
        found = for_each(lambda path: digest_file(folder / path, like=files[path]), paths)
        for path, digest in zip(paths, found, strict=True):
            check_digest(checkpoint, path, digest, files[path])
    return tuple(extra_files(manifest, sizes))


def check_digest(checkpoint: str, path: str, found: FileDigest, expected: FileDigest) -> None:
    """Raise if what was read is not what was written."""
    if found.size != expected.size:
        raise _invalid(checkpoint, path, f"has {found.size:,} bytes instead of {expected.size:,}")
    if found.sha256 != expected.sha256:
        raise _invalid(
            checkpoint, path, f"is damaged: its SHA-256 is {found.sha256}, not {expected.sha256}"
        )


def extra_files(manifest: Manifest, paths: Iterable[str]) -> Iterator[str]:
    """Yield the files that are there but were not written with the checkpoint."""
    for path in sorted(paths):
        if not path.endswith("/") and path not in manifest.contents.files and path != MANIFEST_NAME:
            yield path
