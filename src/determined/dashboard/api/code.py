"""The code of an experiment, and a diff of code and configuration with another experiment."""

from __future__ import annotations

import difflib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Annotated, Any

from pydantic import Field
from starlette.responses import Response, StreamingResponse
from typing_extensions import TypedDict

from determined.config import masked, to_yaml
from determined.dashboard.endpoints.endpoints import ApiError, Routes
from determined.dashboard.endpoints.parameters import NO_NULL, Id
from determined.dashboard.view import View
from determined.platform.homes.code_archive import write_archive
from determined.platform.homes.snapshot import Snapshot, load_snapshot

routes = Routes("code")

_LARGEST_SHOWN = 512 * 1024
_LARGEST_DIFF = 200_000
_MOST_FILES = 5000
_PIECE = 1 << 18


class FileJson(TypedDict):
    path: str
    size: int


class CodeJson(TypedDict):
    files: list[FileJson]
    truncated: bool


class FileContent(TypedDict):
    """A file; without text if it is binary."""

    path: str
    text: str | None
    binary: bool
    truncated: bool
    size: int


class FileDiff(TypedDict):
    """A file that was added, removed or changed; no `diff` if it is binary or too large."""

    path: str
    change: str
    diff: str


class DiffJson(TypedDict):
    config: str
    code: list[FileDiff]
    hparams: dict[str, list[Any]]
    truncated: bool


@routes.get("/experiments/{id}/code")
def code(view: View, id: Id) -> CodeJson:
    """The files of an experiment's code."""
    snapshot = snapshot_of(view, id)
    if snapshot is None:
        return {"files": [], "truncated": False}
    files = list(files_of(snapshot))
    rows: list[FileJson] = [
        {"path": name, "size": path.lstat().st_size} for name, path in files[:_MOST_FILES]
    ]
    return {"files": rows, "truncated": len(files) > _MOST_FILES}


_Path = Annotated[str, Field(min_length=1, max_length=1000, pattern=NO_NULL)]


@routes.get("/experiments/{id}/code/file")
def file(view: View, id: Id, path: _Path) -> FileContent:
    """One file of an experiment's code."""
    snapshot = snapshot_of(view, id)
    found = None if snapshot is None else dict(files_of(snapshot)).get(path)
    if found is None:
        raise ApiError(404, f"The code of experiment {id} has no file of this name.")
    content = read_start(found, _LARGEST_SHOWN + 1)
    text = as_text(content[:_LARGEST_SHOWN])
    return {
        "path": path,
        "text": text,
        "binary": text is None,
        "truncated": len(content) > _LARGEST_SHOWN,
        "size": found.lstat().st_size,
    }


@routes.get("/experiments/{id}/code/download", "application/gzip")
def download(view: View, id: Id) -> Response:
    """The code of an experiment as a tar.gz archive."""
    snapshot = snapshot_of(view, id)
    if snapshot is None:
        raise ApiError(404, f"Experiment {id} was created without code.")
    archive = tempfile.TemporaryFile()  # noqa: SIM115  # closed when all of it is sent
    write_archive(snapshot, archive)
    archive.seek(0)
    headers = {"Content-Disposition": f'attachment; filename="experiment-{id}-code.tar.gz"'}
    return StreamingResponse(_pieces(archive), media_type="application/gzip", headers=headers)


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while piece := file.read(_PIECE):
            yield piece


@routes.get("/experiments/{id}/diff")
def diff(view: View, id: Id, other: Id) -> DiffJson:
    """How another experiment differs from this one: configuration and code."""
    left, right = view.experiment(id), view.experiment(other)
    config = unified(
        to_yaml(masked(left.config)), to_yaml(masked(right.config)), str(id), str(other)
    )
    files, truncated = code_diff(snapshot_of(view, id), snapshot_of(view, other))
    mine, theirs = (dict(r.config.get("hyperparameters") or {}) for r in (left, right))
    names = [n for n in {**mine, **theirs} if mine.get(n) != theirs.get(n)]
    return {
        "config": config,
        "code": files,
        "hparams": {name: [mine.get(name), theirs.get(name)] for name in names},
        "truncated": truncated,
    }


def snapshot_of(view: View, experiment_id: int) -> Snapshot | None:
    """The code of an experiment, None if it has none."""
    digest = view.experiment(experiment_id).snapshot_id
    if digest is None:
        return None
    try:
        return load_snapshot(view.home.snapshots, digest)
    except (OSError, ValueError):
        raise ApiError(404, f"The code of experiment {experiment_id} no longer exists.") from None


def files_of(snapshot: Snapshot) -> Iterator[tuple[str, Path]]:
    """The regular files of a snapshot, by name; links are left out."""
    for path in sorted(snapshot.tree.rglob("*"), key=os.fsencode):
        if stat.S_ISREG(path.lstat().st_mode):
            yield str(path.relative_to(snapshot.tree)), path


def read_start(path: Path, size: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as opened:
        return opened.read(size)


def as_text(content: bytes) -> str | None:
    """Decode bytes as text; None if they are binary."""
    if b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        # The last character may have been cut in two.
        return content[: error.start].decode() if error.start > len(content) - 4 else None


def unified(left: str, right: str, left_name: str, right_name: str) -> str:
    """A unified diff of two texts."""
    lines = difflib.unified_diff(
        left.splitlines(), right.splitlines(), left_name, right_name, lineterm=""
    )
    return "\n".join(lines)


def code_diff(left: Snapshot | None, right: Snapshot | None) -> tuple[list[FileDiff], bool]:
    """The files in which two snapshots differ, and whether something was left out."""
    if left is not None and right is not None and left.digest == right.digest:
        return [], False
    mine = dict(files_of(left)) if left else {}
    theirs = dict(files_of(right)) if right else {}
    found: list[FileDiff] = []
    budget, truncated = _LARGEST_DIFF, False
    for name in sorted({**mine, **theirs}):
        contents = [
            read_start(files[name], _LARGEST_SHOWN) if name in files else b""
            for files in (mine, theirs)
        ]
        if contents[0] == contents[1] and name in mine and name in theirs:
            continue
        change = "added" if name not in mine else "removed" if name not in theirs else "changed"
        texts = [as_text(content) for content in contents]
        is_small = budget > 0 and sum(map(len, contents)) < _LARGEST_DIFF
        text = unified(texts[0], texts[1], name, name) if is_small and None not in texts else ""  # type: ignore[arg-type]
        truncated |= not is_small
        budget -= len(text)
        found.append({"path": name, "change": change, "diff": text})
    return found, truncated
