"""Checkpoints as folders of a file system: staged, flushed to disk, then renamed into view."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import stat
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from determined._contracts.checkpoint_layout import is_storage_id
from determined._contracts.home import home_path, make_private
from determined.errors import CheckpointError, CheckpointNotFound, InvalidCheckpointException
from determined.storage._base import (
    DAMAGE_NAME,
    Selector,
    StorageManager,
    StrPath,
    check_storage_id,
    list_directory,
    run_id_in,
    with_parents,
)
from determined.storage._crash_points import reach
from determined.storage._durable import (
    FileDigest,
    checkpoint_errors,
    copy_file,
    digest_file,
    for_each,
    sync_names_above,
    sync_path,
    write_file,
)
from determined.storage._fetch import fetch_into
from determined.storage._manifest import (
    MANIFEST_NAME,
    METADATA_NAME,
    Contents,
    Manifest,
    check_folder,
    read_json_file,
    read_manifest,
    walk,
)
from determined.storage._patterns import remaining
from determined.storage._tags import RunTags
from determined.storage.local.hidden import HiddenFolders, new_stage

logger = logging.getLogger("determined.storage")


class SharedFSStorageManager(StorageManager):
    """Checkpoints as folders below one base folder, `<base_path>/<storage_id>/`."""

    def __init__(self, base_path: StrPath) -> None:
        super().__init__()
        self._base = Path(base_path).expanduser().absolute()
        self._is_prepared = False
        self._uid: int | None = None
        self._hidden = HiddenFolders(self._base)
        self._run_tags = RunTags(self._base)

    @property
    def location(self) -> str:
        return str(self._base)

    @property
    def base_path(self) -> Path:
        return self._base

    def store_path_is_direct_access(self) -> bool:
        return True

    # Saving.

    def begin(self, dst: str) -> str:
        check_storage_id(dst)
        stage = new_stage(dst)
        self._prepare()
        reach("before_tmp")
        with checkpoint_errors("create the folder", self._base / stage):
            if (self._base / dst).exists():
                raise CheckpointError(f"Checkpoint {dst} already exists in {self._base}.")
            self._hidden.make_stage(stage)
        return stage

    def _prepare(self) -> None:
        """Create the base folder once; if it vanishes later, raise and do not create it again."""
        if self._is_prepared:
            return
        with checkpoint_errors("create the checkpoint folder", self._base):
            if self._base == home_path():  # scripts save there unless told otherwise
                make_private(self._base, parents=True)
            self._base.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(OSError):  # a read-only storage can still be read
                self._hidden.make_locks()
            sync_names_above(self._base)
        self._is_prepared = True
        self.sweep()

    def check(self) -> None:
        """Raise now if nothing can be written here; a folder that cannot be removed is swept."""
        self._prepare()
        folder = self._base / f".check.tmp-{uuid.uuid4().hex}"
        with checkpoint_errors("write into", self._base):
            folder.mkdir()
            folder.rmdir()

    def put(
        self,
        src: Path,
        stage: str,
        paths: Iterable[str] | None = None,
        known: Mapping[str, FileDigest] | None = None,
    ) -> Contents:
        target = self._base / stage
        if Path(src) == target:
            return self._seal(target, known or {})
        sizes = list_directory(src)
        sizes.pop(MANIFEST_NAME, None)
        chosen = with_parents(sizes if paths is None else (p for p in sizes if p in set(paths)))
        folders = sorted(path for path in chosen if path.endswith("/"))
        files = sorted(path for path in chosen if not path.endswith("/"))
        with checkpoint_errors("copy files into", target, sum(sizes[path] for path in files)):
            for folder in folders:
                (target / folder).mkdir(exist_ok=True)
            digests = for_each(lambda path: copy_file(src / path, target / path), files)
        return Contents(dict(zip(files, digests, strict=True)), frozenset(folders))

    def _seal(self, target: Path, known: Mapping[str, FileDigest]) -> Contents:
        """Hash and flush what was written straight into the stage."""

        def seal(path: str) -> FileDigest:
            digest = known.get(path)
            if digest is not None and digest.still_describes(target / path):
                return digest
            return digest_file(target / path, sync=True)

        with checkpoint_errors("finish writing", target):
            for link in [path for path in target.rglob("*") if path.is_symlink()]:
                _replace_link(link)
            sizes = dict(walk(target, target.name))
            sizes.pop(MANIFEST_NAME, None)
            files = [path for path in sizes if not path.endswith("/")]
            if lost := sorted(known.keys() - sizes.keys()):
                raise CheckpointError(
                    f"{target / lost[0]} was written, but has disappeared. Is the storage still "
                    "mounted, and has nothing else removed files from it?"
                )
            digests = for_each(seal, files)
        folders = frozenset(path for path in sizes if path.endswith("/"))
        return Contents(dict(zip(files, digests, strict=True)), folders)

    def commit(
        self, stage: str, dst: str, contents: Contents, metadata: Mapping[str, Any] | None = None
    ) -> Manifest:
        source, target = self._base / stage, self._base / check_storage_id(dst)
        if metadata is not None:
            path = source / METADATA_NAME
            with checkpoint_errors("write", path):
                path.unlink(missing_ok=True)
            digest = write_file(path, json.dumps(metadata, indent=2).encode())
            contents = contents.merged_with(Contents({METADATA_NAME: digest}))
        for_each(lambda folder: sync_path(source / folder), contents.directories)
        reach("before_manifest")
        manifest = self._manifest_for(contents, metadata)
        write_file(source / MANIFEST_NAME, manifest.to_json())
        sync_path(source)
        reach("before_rename")
        with checkpoint_errors(f"rename {source.name} to", target):
            source.rename(target)
        reach("after_rename")
        try:
            sync_path(self._base)
        except BaseException:  # its name may be lost: the save fails, and nothing is left of it
            with contextlib.suppress(FileNotFoundError):  # the storage itself is gone
                target.rename(source)
            raise
        if (run_id := run_id_in(metadata or {})) is not None:
            self._note_run(dst, run_id)
        self._hidden.release_stage(stage)
        return manifest

    def abort(self, stage: str) -> None:
        self._hidden.remove_stage(stage)

    def pre_store_path(self, dst: str) -> Path:
        return self._base / self.begin(dst)

    def post_store_path(
        self,
        src: StrPath,
        dst: str,
        paths: Iterable[str] | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        known: Mapping[str, FileDigest] | None = None,
    ) -> Manifest:
        stage = Path(src)
        return self.commit(stage.name, dst, self.put(stage, stage.name, paths, known), metadata)

    def discard(self, path: Path) -> None:
        self.abort(path.name)

    # Sharing.

    def _share(
        self, src: str, path: str, folder: Path, dst: str, digest: FileDigest
    ) -> FileDigest | None:
        source, target = self._locate(src) / path, folder / path
        target.parent.mkdir(exist_ok=True)
        os.link(source, target, follow_symlinks=False)
        status = target.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size != digest.size:
            target.unlink()
            return None
        reach("after_link")
        return digest._replace(mtime_ns=status.st_mtime_ns)

    @contextlib.contextmanager
    def pinned(self, src: str) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(CheckpointNotFound):  # then nothing of it can be shared
                stack.enter_context(self._in_use(src))
            yield

    def _note_damage(self) -> None:
        (self._base / DAMAGE_NAME).touch()

    def _damage_since(self, src: str, path: str) -> bool:
        try:
            noted = (self._base / DAMAGE_NAME).stat().st_mtime_ns
        except FileNotFoundError:
            return False
        return noted >= (self._locate(src) / path).stat().st_mtime_ns

    # Reading.

    @contextlib.contextmanager
    def restore_path(
        self, src: StrPath, selector: Selector | None = None, *, verify: bool = True
    ) -> Iterator[Path]:
        """Yield the checkpoint's own folder, protected from deletion inside the `with` block."""
        if selector is not None:
            logger.warning("`selector` is ignored: all files are visible in %s.", self._base)
        with self._in_use(src) as folder:
            if verify:
                self.verify(src)
            yield folder

    def download(
        self,
        src: StrPath,
        dst: StrPath,
        selector: Selector | None = None,
        *,
        verify: bool = True,
    ) -> None:
        with self._in_use(src) as folder:
            sizes = dict(walk(folder, str(src)))
            manifest = read_manifest(folder, str(src)) if verify else None
            fetch_into(
                Path(dst),
                sizes,
                manifest,
                selector,
                lambda path, target: copy_file(folder / path, target),
                str(src),
            )

    def _verify(self, src: StrPath) -> bool:
        with self._in_use(src) as folder:
            extra = check_folder(folder, str(src))
        if extra is None:
            logger.info("Checkpoint %s has no %s: its files are unverified.", src, MANIFEST_NAME)
        elif extra:
            logger.warning(
                "Checkpoint %s contains files that were not saved with it: %s.",
                src,
                ", ".join(extra),
            )
        return extra is not None

    def _locate(self, src: StrPath) -> Path:
        """The folder of a storage id, which is below the base, or of an absolute path."""
        folder = Path(src)
        if not folder.is_absolute():
            folder = self._base / check_storage_id(os.fspath(src))
            if folder.is_symlink():
                raise InvalidCheckpointException(f"Checkpoint {src}: {folder} is a symbolic link.")
        if not folder.is_dir():
            if Path(src).is_absolute():
                raise CheckpointNotFound(f"The checkpoint {src} does not exist.")
            raise CheckpointNotFound(f"There is no checkpoint {src} in {self._base}.")
        return folder

    def owner_if_foreign(self, name: str) -> str | None:
        try:
            owner = (self._base / name).lstat().st_uid
        except OSError:
            return None  # reading it will say why
        return None if owner in (os.geteuid(), self._uid_here()) else f"user {owner}"

    def _uid_here(self) -> int:
        """Whom the file system takes us for: a server may know root by another number."""
        if self._uid is None:
            probe = self._base / f".check.tmp-{uuid.uuid4().hex}"
            try:
                probe.mkdir()
                self._uid = probe.stat().st_uid
                probe.rmdir()
            except OSError:  # a storage that can only be read
                self._uid = os.geteuid()
        return self._uid

    @contextlib.contextmanager
    def _in_use(self, src: StrPath) -> Iterator[Path]:
        folder = self._locate(src)
        with self._hidden.reading(folder):
            yield self._locate(src)

    def _names(self) -> list[str]:
        try:
            with os.scandir(self._base) as entries:
                return sorted(
                    entry.name
                    for entry in entries
                    if is_storage_id(entry.name) and entry.is_dir(follow_symlinks=False)
                )
        except FileNotFoundError:
            return []

    def _read(self, name: StrPath, file: str) -> bytes | None:
        folder = self._locate(name)
        text = read_json_file(folder / file, f"Checkpoint {name}: {folder / file}")
        if text is None:
            self._locate(name)  # raises if the whole folder is gone by now
        return text

    def _sizes(self, name: StrPath) -> dict[str, int]:
        try:
            return dict(walk(self._locate(name), str(name)))
        except FileNotFoundError as error:
            raise CheckpointNotFound(f"Checkpoint {name} was deleted in the meantime.") from error

    def _tag(self, name: str, tag: str) -> None:
        self._run_tags.add(name, tag)

    def _untag(self, name: str, tag: str) -> None:
        self._run_tags.remove(name, tag)

    def _tags(self, tag: str | None = None) -> dict[str, str]:
        return self._run_tags.read(tag)

    # Deleting.

    def delete(self, tgt: str, globs: list[str]) -> dict[str, int]:
        try:
            folder = self._locate(check_storage_id(tgt))
        except CheckpointNotFound:
            return {}
        with self._hidden.alone_with(tgt), checkpoint_errors("delete", folder):
            before = self.resources(tgt)
            left = remaining(before, globs)
            if not left:
                run_id = self._run_of(tgt)
                self._hidden.remove_checkpoint(tgt)
                self._forget_run(tgt, run_id)
            elif left != before:
                self._shrink(folder, before, left)
        return left

    def _shrink(self, folder: Path, before: Mapping[str, int], left: Mapping[str, int]) -> None:
        """Update the manifest, then remove the files: a crash in between leaves extra files."""
        manifest = read_manifest(folder, folder.name)
        if manifest is not None:
            smaller = manifest.limited_to(left)
            fresh = folder / f"{MANIFEST_NAME}.new"
            write_file(fresh, smaller.to_json())
            fresh.rename(folder / MANIFEST_NAME)
            sync_path(folder)
        gone = sorted((path for path in before if path not in left), reverse=True)
        for path in gone:
            if path.endswith("/"):
                (folder / path).rmdir()
            else:
                (folder / path).unlink()

    def sweep(self) -> None:
        self._hidden.sweep()


class DirectoryStorageManager(SharedFSStorageManager):
    """The same, at a path that is never mapped to another one inside a container."""


def _replace_link(link: Path) -> None:
    """A checkpoint has no links: replace one by the file that it points to."""
    content = link.resolve()
    if not content.is_file():
        raise CheckpointError(
            f"{link} leads to {content}, which is not a file: a checkpoint can only contain files "
            "and directories."
        )
    link.unlink()
    copy_file(content, link)
