"""Files of a folder as a checkpoint; those that did not change may be shared with the last one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from determined._info import trial_of
from determined.core import Context
from determined.core._checkpoint_shards import select
from determined.storage import FileDigest, HashingFile, Manifest
from determined.storage._durable import digest_file
from determined.storage._manifest import MANIFEST_NAME


@dataclass(frozen=True)
class Saved:
    """A checkpoint that was saved, and its folder for the files of one step."""

    storage_id: str
    folder: str


def save_files(
    core_context: Context,
    folder: Path,
    selector: Callable[[str], bool],
    metadata: dict[str, Any],
    *,
    step_folder: str,
    last: Saved | None = None,
) -> Saved:
    """Save the selected files of `folder` as a checkpoint. All ranks call it in step.

    Ranks of a machine that have the same folder save it once. With `save_frozen: once` in the
    experiment's `checkpoint_storage`, a file of `step_folder` with the same bytes as in the last
    checkpoint becomes a hard link to it, in a local storage.
    """
    distributed = core_context.distributed
    status = folder.stat() if folder.is_dir() else None
    place = None if status is None else (status.st_dev, status.st_ino)
    has_files = distributed.allgather_local(place).index(place) == distributed.local_rank
    mine = folder if has_files and place is not None else None
    if last is not None and distributed.cross_size == 1 and _saves_frozen_once(core_context):
        saving = _Sharing(core_context, last, step_folder)
        return Saved(saving.save(mine, selector, metadata), step_folder)
    storage_id = core_context.checkpoint.upload(
        mine, metadata, shard=True, selector=None if mine is None else selector
    )
    return Saved(storage_id, step_folder)


def _saves_frozen_once(core_context: Context) -> bool:
    trial = trial_of(core_context.info)
    storage = trial._config.get("checkpoint_storage") if trial is not None else None
    return (storage or {}).get("save_frozen") == "once" and (
        core_context.checkpoint._storage.store_path_is_direct_access()
    )


class _Sharing:
    """Saves a checkpoint whose unchanged files are links to those of the last one."""

    def __init__(self, core_context: Context, last: Saved, step_folder: str) -> None:
        self._checkpoint = core_context.checkpoint
        self._last = last
        self._step_folder = step_folder

    def save(
        self, folder: Path | None, selector: Callable[[str], bool], metadata: dict[str, Any]
    ) -> str:
        known: dict[str, FileDigest] = {}
        with (
            self._checkpoint._pinned(self._last.storage_id),
            self._checkpoint.store_path(metadata, shard=True, known=known) as (path, storage_id),
        ):
            if folder is not None:
                self._fill(path, storage_id, folder, selector, known)
        return storage_id

    def _fill(
        self,
        path: Path,
        storage_id: str,
        folder: Path,
        selector: Callable[[str], bool],
        known: dict[str, FileDigest],
    ) -> None:
        saved = self._saved_files()
        for name in select(folder, selector):
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            if name.endswith("/"):
                (path / name).mkdir(exist_ok=True)
                continue
            digest = self._linked(path, storage_id, folder, name, saved)
            known[name] = digest or _copied(folder / name, path / name)

    def _saved_files(self) -> Mapping[str, FileDigest]:
        last = self._last.storage_id
        text = self._checkpoint._storage.read_text(last, MANIFEST_NAME)
        return {} if text is None else Manifest.from_json(text, last).contents.files

    def _linked(
        self,
        path: Path,
        storage_id: str,
        folder: Path,
        name: str,
        saved: Mapping[str, FileDigest],
    ) -> FileDigest | None:
        """Link a file to that of the last checkpoint, whose folder has another name; or None."""
        before = name.replace(f"{self._step_folder}/", f"{self._last.folder}/", 1)
        there = saved.get(before)
        if there is None or there.size != (folder / name).stat().st_size:
            return None
        if digest_file(folder / name, like=there).sha256 != there.sha256:
            return None
        (path / before).parent.mkdir(parents=True, exist_ok=True)
        digest = self._checkpoint._share(self._last.storage_id, before, path, storage_id)
        if digest is not None and before != name:
            (path / before).rename(path / name)
        _remove_empty((path / before).parent, path)
        return digest


def _copied(source: Path, target: Path) -> FileDigest:
    with source.open("rb") as reader, HashingFile(target) as writer:
        shutil.copyfileobj(reader, writer)
    return writer.digest


def _remove_empty(folder: Path, top: Path) -> None:
    while folder != top and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent
