"""Checkpoints in object stores, through fsspec. The manifest is written last and read first."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import posixpath
import random
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from determined._contracts.checkpoint_layout import is_storage_id
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
from determined.storage._durable import FileDigest, digest_bytes, digest_file, for_each
from determined.storage._fetch import fetch_into
from determined.storage._manifest import (
    MANIFEST_NAME,
    METADATA_NAME,
    Contents,
    Manifest,
    check_digest,
    compare,
    is_inner_path,
)
from determined.storage._patterns import remaining
from determined.storage._tags import FOLDER
from determined.storage.remote.retry import with_retries

logger = logging.getLogger("determined.storage")


class FsspecStorageManager(StorageManager):
    """Checkpoints as objects `<root>/<storage_id>/<path>` of a file system that fsspec knows."""

    def __init__(
        self,
        open_filesystem: Callable[[], Any],
        root: str,
        *,
        protocol: str,
        temp_dir: StrPath | None = None,
    ) -> None:
        super().__init__()
        self._open_filesystem = open_filesystem
        self._root = root.strip("/")
        self._protocol = protocol
        self._temp_dir = temp_dir
        self._opened: tuple[int, Any] = (0, None)
        self._shared: dict[Path, tuple[str, dict[str, FileDigest]]] = {}  # by temporary folder

    @property
    def _filesystem(self) -> Any:
        # Connections do not survive a fork: each process opens its own.
        if self._opened[0] != os.getpid():
            self._opened = (os.getpid(), self._open_filesystem())
        return self._opened[1]

    def import_client(self) -> None:
        import fsspec

        state = random.getstate()
        try:
            fsspec.get_filesystem_class(self._protocol)
        finally:
            random.setstate(state)

    @property
    def location(self) -> str:
        return f"{self._protocol}://{self._root}"

    def store_path_is_direct_access(self) -> bool:
        return False

    def _key(self, name: str, path: str = "") -> str:
        return f"{self._root}/{name}/{path}" if path else f"{self._root}/{name}"

    def _call(self, operation: str, key: str, method: str, *arguments: Any, **options: Any) -> Any:
        return with_retries(
            operation,
            f"{self._protocol}://{key}",
            lambda: getattr(self._filesystem, method)(*arguments, **options),
        )

    # Saving.

    def begin(self, dst: str) -> str:
        check_storage_id(dst)
        reach("before_tmp")
        if self._read(dst, MANIFEST_NAME) is not None:
            raise CheckpointError(f"Checkpoint {dst} already exists in {self.location}.")
        return dst

    def check(self) -> None:
        key = self._key(f".det-check-{uuid.uuid4()}")
        self._write(key, b"")
        with contextlib.suppress(Exception):  # it may be allowed to write, not to delete
            self._remove(key)

    def put(
        self,
        src: Path,
        stage: str,
        paths: Iterable[str] | None = None,
        known: Mapping[str, FileDigest] | None = None,
    ) -> Contents:
        src, known = Path(src), known or {}
        sizes = list_directory(src)
        sizes.pop(MANIFEST_NAME, None)
        chosen = with_parents(sizes if paths is None else (p for p in sizes if p in set(paths)))
        folders = frozenset(path for path in chosen if path.endswith("/"))
        files = sorted(path for path in chosen if not path.endswith("/"))
        digests: dict[str, FileDigest] = {}

        def send(path: str) -> None:
            digest = known.get(path)
            if digest is None or not digest.still_describes(src / path):
                digest = digest_file(src / path)
            key = self._key(stage, path)
            try:
                self._call("upload", key, "put_file", str(src / path), key)
            except FileNotFoundError as error:
                raise CheckpointError(
                    f"Cannot upload {src / path} to {self.location}: {error}. "
                    "Does the bucket exist?"
                ) from error
            reach("mid_write")
            digests[path] = digest

        # Without a manifest but with metadata, it counts as a checkpoint of another release.
        for_each(send, [path for path in files if path != METADATA_NAME])
        for_each(lambda folder: self._put_directory(self._key(stage, folder)), folders)
        for_each(send, [path for path in files if path == METADATA_NAME])
        _, shared = self._shared.pop(src, (stage, {}))
        parents = frozenset(path for path in with_parents(shared) if path.endswith("/"))
        return Contents({**shared, **digests}, folders | parents)

    def _put_directory(self, key: str) -> None:
        """Object stores have no directories; the manifest lists them."""

    def commit(
        self, stage: str, dst: str, contents: Contents, metadata: Mapping[str, Any] | None = None
    ) -> Manifest:
        if metadata is not None:
            text = json.dumps(metadata, indent=2).encode()
            digest = self._write(self._key(dst, METADATA_NAME), text)
            contents = contents.merged_with(Contents({METADATA_NAME: digest}))
        manifest = self._manifest_for(contents, metadata)
        reach("before_manifest")
        self._write(self._key(dst, MANIFEST_NAME), manifest.to_json())
        if (run_id := run_id_in(metadata or {})) is not None:
            self._note_run(dst, run_id)
        return manifest

    def _write(self, key: str, text: bytes) -> FileDigest:
        try:
            self._call("write", key, "pipe_file", key, text)
        except FileNotFoundError as error:
            raise CheckpointError(
                f"Cannot write {self._protocol}://{key}: {error}. Does the bucket exist?"
            ) from error
        return digest_bytes(text)

    def abort(self, stage: str) -> None:
        try:
            self._remove_everything(stage)
        except Exception as error:  # the error that led here is the one to raise
            logger.warning("Could not remove the aborted upload %s: %s", self._key(stage), error)

    def pre_store_path(self, dst: str) -> Path:
        check_storage_id(dst)
        return self._temporary_folder()

    def _temporary_folder(self) -> Path:
        if self._temp_dir is not None:
            Path(self._temp_dir).mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="det-checkpoint-", dir=self._temp_dir))

    def post_store_path(
        self,
        src: StrPath,
        dst: str,
        paths: Iterable[str] | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        known: Mapping[str, FileDigest] | None = None,
    ) -> Manifest:
        stage = self.begin(dst)
        try:
            contents = self.put(Path(src), stage, paths, known)
            manifest = self.commit(stage, dst, contents, metadata)
        except BaseException:
            self.abort(stage)
            raise
        self.discard(Path(src))
        return manifest

    def discard(self, path: Path) -> None:
        shutil.rmtree(path, ignore_errors=True)
        if path in self._shared:
            stage, _ = self._shared.pop(path)
            self.abort(stage)

    # Sharing.

    def _share(
        self, src: str, path: str, folder: Path, dst: str, digest: FileDigest
    ) -> FileDigest | None:
        """Have the store copy an object: no byte of it passes through this machine."""
        source, target = self._key(src, path), self._key(dst, path)
        _, shared = self._shared.setdefault(folder, (dst, {}))  # removed if the save fails
        self._call("copy", target, "cp_file", source, target)
        reach("after_link")
        self._filesystem.invalidate_cache()
        if self._call("look up", target, "info", target)["size"] != digest.size:
            return None
        shared[path] = digest
        return digest

    def _note_damage(self) -> None:
        self._write(self._key(DAMAGE_NAME), b"")

    def _damage_since(self, src: str, path: str) -> bool:
        self._filesystem.invalidate_cache()
        key = self._key(DAMAGE_NAME)
        try:
            noted = self._call("look up", key, "modified", key)
        except FileNotFoundError:
            return False
        return bool(noted >= self._filesystem.modified(self._key(src, path)))

    # Reading.

    @contextlib.contextmanager
    def restore_path(
        self, src: StrPath, selector: Selector | None = None, *, verify: bool = True
    ) -> Iterator[Path]:
        """Yield a temporary copy, removed at the end of the `with` block."""
        copy = self._temporary_folder()
        try:
            self.download(src, copy, selector, verify=verify)
            yield copy
        finally:
            shutil.rmtree(copy, ignore_errors=True)

    def download(
        self,
        src: StrPath,
        dst: StrPath,
        selector: Selector | None = None,
        *,
        verify: bool = True,
    ) -> None:
        name = check_storage_id(os.fspath(src))
        sizes = self._sizes(name)
        manifest = self._manifest(name, sizes) if verify else None
        unsafe = [path for path in sizes if not is_inner_path(path.removesuffix("/"))]
        if unsafe:
            raise InvalidCheckpointException(
                f"Checkpoint {name}: {unsafe[0]!r} is not a path that may be downloaded."
            )

        def fetch(path: str, target: Path) -> FileDigest:
            key = self._key(name, path)
            self._call("download", key, "get_file", key, str(target))
            return digest_file(target, sync=True)

        fetch_into(Path(dst), sizes, manifest, selector, fetch, name)

    def _manifest(self, name: str, sizes: Mapping[str, int]) -> Manifest | None:
        text = self._read(name, MANIFEST_NAME)
        if text is not None:
            return Manifest.from_json(text, name)
        if METADATA_NAME not in sizes:
            raise InvalidCheckpointException(
                f"Checkpoint {name} in {self.location} has neither {MANIFEST_NAME} nor "
                f"{METADATA_NAME}: its upload was never completed. `verify=False` uses the files "
                "as they are."
            )
        logger.info("Checkpoint %s has no %s: its files are unverified.", name, MANIFEST_NAME)
        return None

    def _verify(self, src: StrPath) -> bool:
        """Read every object and compare it with the manifest."""
        name = check_storage_id(os.fspath(src))
        sizes = self._sizes(name)
        manifest = self._manifest(name, sizes)
        if manifest is None:
            return False
        extra = compare(manifest, sizes, None, name)
        if extra:
            logger.warning(
                "Checkpoint %s contains files that were not saved with it: %s.",
                name,
                ", ".join(extra),
            )
        folder = self._temporary_folder()
        try:
            for number, (path, expected) in enumerate(sorted(manifest.contents.files.items())):
                key, target = self._key(name, path), folder / str(number)
                self._call("download", key, "get_file", key, str(target))
                check_digest(name, path, digest_file(target, like=expected), expected)
                target.unlink()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return True

    def _names(self) -> list[str]:
        self._filesystem.invalidate_cache()
        try:
            entries = self._call("list", self._root, "ls", self._root, detail=True)
        except FileNotFoundError:
            return []
        names = [
            posixpath.basename(e["name"].rstrip("/")) for e in entries if e["type"] == "directory"
        ]
        return sorted(name for name in names if is_storage_id(name))

    def _read(self, name: StrPath, file: str) -> bytes | None:
        key = self._key(check_storage_id(os.fspath(name)), file)
        try:
            content: bytes = self._call("read", key, "cat_file", key)
        except FileNotFoundError:
            return None
        return content

    def _sizes(self, name: StrPath) -> dict[str, int]:
        key = self._key(check_storage_id(os.fspath(name)))
        self._filesystem.invalidate_cache()
        found = self._call("list", key, "find", key, detail=True)
        prefix = key + "/"
        sizes = {
            path.lstrip("/")[len(prefix) :]: int(info["size"] or 0)
            for path, info in found.items()
            if path.lstrip("/").startswith(prefix) and path.lstrip("/") != prefix
        }
        if not sizes:
            raise CheckpointNotFound(f"There is no checkpoint {name} in {self.location}.")
        return dict.fromkeys(with_parents(sizes), 0) | sizes

    def resources(self, src: StrPath) -> dict[str, int]:
        sizes = super().resources(src)
        text = self._read(src, MANIFEST_NAME)
        if text is not None:
            listed = Manifest.from_json(text, str(src)).contents.directories
            sizes.update(dict.fromkeys(listed, 0))
        return dict(sorted(sizes.items()))

    # Tags: empty objects; all information is in their names.

    _MOST_TAGS_AT_ONCE = 200  # each is a request

    def _tag(self, name: str, tag: str) -> None:
        self._write(self._key(FOLDER, f"{tag}/{name}"), b"")

    def _untag(self, name: str, tag: str) -> None:
        self._remove(self._key(FOLDER, f"{tag}/{name}"))

    def _tags(self, tag: str | None = None) -> dict[str, str]:
        folder = self._key(FOLDER, tag or "")
        self._filesystem.invalidate_cache()
        try:
            paths = self._call("list", folder, "find", folder)
        except FileNotFoundError:
            return {}
        pairs = [path.rsplit("/", 2)[-2:] for path in paths]
        return {name: own for own, name in pairs}

    # Deleting.

    def delete(self, tgt: str, globs: list[str]) -> dict[str, int]:
        check_storage_id(tgt)
        try:
            before = self.resources(tgt)
        except CheckpointNotFound:
            return {}
        left = remaining(before, globs)
        if not left:
            run_id = self._run_of(tgt)
            self._remove_everything(tgt)
            self._forget_run(tgt, run_id)
        elif left != before:
            self._shrink(tgt, before, left)
        return left

    def _remove_everything(self, name: str) -> None:
        """Remove the manifest first: without it, this is no longer a checkpoint."""
        self._remove(self._key(name, MANIFEST_NAME))
        reach("mid_gc")
        with contextlib.suppress(CheckpointNotFound):
            for_each(lambda path: self._remove(self._key(name, path)), self._sizes(name))

    def _remove(self, key: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._call("delete", key, "rm_file", key)

    def _shrink(self, name: str, before: Mapping[str, int], left: Mapping[str, int]) -> None:
        text = self._read(name, MANIFEST_NAME)
        if text is not None:
            smaller = Manifest.from_json(text, name).limited_to(left)
            self._write(self._key(name, MANIFEST_NAME), smaller.to_json())
        gone = [path for path in before if path not in left]
        for_each(lambda path: self._remove(self._key(name, path)), gone)

    def sweep(self) -> None:
        """Nothing to do: its objects do not show whether an upload crashed or is running."""
