"""The interface of every checkpoint storage, and what does not depend on where the bytes are."""

from __future__ import annotations

import abc
import contextlib
import hashlib
import logging
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from determined._contracts.checkpoint_layout import is_storage_id
from determined._contracts.retention import rank
from determined.errors import CheckpointError, CheckpointNotFound, InvalidCheckpointException
from determined.storage._durable import FileDigest, digest_bytes, for_each
from determined.storage._manifest import (
    MANIFEST_NAME,
    METADATA_NAME,
    Contents,
    Manifest,
    check_digest,
    compare,
    load_json,
)

logger = logging.getLogger("determined.storage")

Selector = Callable[[str], bool]
StrPath = str | os.PathLike[str]

_MAX_LOOKS = 20
DAMAGE_NAME = ".det-damage"  # an empty file, as old as the last verification that failed


class CheckpointInUseError(CheckpointError):
    """The checkpoint is being restored by a live process and cannot be deleted now."""


@dataclass(frozen=True)
class StoredCheckpoint:
    """One complete checkpoint of a storage, as its manifest and metadata describe it."""

    storage_id: str
    manifest: Manifest
    metadata: Mapping[str, Any]
    extra_files: tuple[str, ...] = ()

    @property
    def run_id(self) -> str | None:
        """The run that wrote it, if its metadata names one."""
        return run_id_in(self.metadata)

    @property
    def order(self) -> tuple[int, int]:
        """Later saves of a run sort higher, whatever the clock says."""
        return (self.manifest.steps_completed or 0, self.manifest.sequence)

    @property
    def is_exact(self) -> bool:
        """Whether a run that continues from it ends as if it had never been interrupted.

        One that was saved after an error in user code may not be: what failed may have changed it.
        """
        return not self.metadata.get("not_exact")

    def metric(self, name: str) -> float | None:
        """The validation metric of that name at the time of the save, None if there was none."""
        metrics = self.metadata.get("metrics")
        value = metrics.get(name) if isinstance(metrics, Mapping) else None
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return None
        try:
            return float(value)
        except OverflowError:  # an integer beyond all floats
            return None


def by_metric(
    checkpoints: Iterable[StoredCheckpoint], name: str, smaller_is_better: bool
) -> list[StoredCheckpoint]:
    """Return the checkpoints that have the metric, best first; NaN last; ties: earlier first."""
    measured = [
        (rank(value, checkpoint.manifest.sequence, smaller_is_better), checkpoint)
        for checkpoint in checkpoints
        if (value := checkpoint.metric(name)) is not None
    ]
    return [checkpoint for _, checkpoint in sorted(measured, key=lambda pair: pair[0])]


def run_id_in(metadata: Mapping[str, Any]) -> str | None:
    """The run that a checkpoint's metadata names, if it does."""
    run_id = metadata.get("run_id")
    return run_id if isinstance(run_id, str) else None


def tag_of(run_id: str | None) -> str:
    """A short name for a run, safe in every storage; those without a run share one."""
    return "none" if run_id is None else hashlib.sha256(run_id.encode()).hexdigest()[:32]


def _in_order(checkpoints: Iterable[StoredCheckpoint]) -> list[StoredCheckpoint]:
    return sorted(checkpoints, key=lambda c: (*c.order, c.storage_id))


def check_storage_id(storage_id: str) -> str:
    """Return `storage_id`, or raise ValueError if it could lead out of the storage."""
    if not is_storage_id(storage_id):
        raise ValueError(
            f"`storage_id` must be a plain name such as a UUID, without separators, wildcards "
            f"or a leading dot, and at most 200 bytes long; got {str(storage_id)[:300]!r}."
        )
    return storage_id


def list_directory(root: StrPath) -> dict[str, int]:
    """Return path to size of everything below `root`; directories end in `/` and have size 0."""
    base = Path(root)
    if not base.exists():
        raise FileNotFoundError(f"There is no directory {base}.")
    if not base.is_dir():
        raise NotADirectoryError(f"{base} is not a directory.")
    found: dict[str, int] = {}
    for folder, folder_names, file_names in os.walk(base):
        prefix = Path(folder).relative_to(base)
        for name in folder_names:
            found[(prefix / name).as_posix() + "/"] = 0
        for name in file_names:
            found[(prefix / name).as_posix()] = (Path(folder) / name).stat().st_size
    return found


def with_parents(paths: Iterable[str]) -> set[str]:
    """Add the directories that lead to each path."""
    result = set(paths)
    for path in list(result):
        parts = path.rstrip("/").split("/")[:-1]
        result.update("/".join(parts[: i + 1]) + "/" for i in range(len(parts)))
    return result


class StorageManager(abc.ABC):
    """Where checkpoints live. A checkpoint is complete, with a manifest, or does not exist.

    A save goes through a stage: `begin` opens it, `put` adds files (from several processes if
    need be), `commit` makes it the checkpoint in one step, `abort` drops it. `upload` and
    `store_path` do all of that for one process.
    """

    _MOST_TAGS_AT_ONCE: int | None = None  # how many older checkpoints one listing may tag

    def __init__(self) -> None:
        self._last_sequences: dict[str, int] = {}  # by tag
        self._reported_damage: set[str] = set()

    # Saving.

    @abc.abstractmethod
    def begin(self, dst: str) -> str:
        """Open a stage for checkpoint `dst`; the returned name is valid in all processes."""

    @abc.abstractmethod
    def put(
        self,
        src: Path,
        stage: str,
        paths: Iterable[str] | None = None,
        known: Mapping[str, FileDigest] | None = None,
    ) -> Contents:
        """Copy the files of `src` (those in `paths`, if given) into the stage, durably.

        Files with an entry in `known` that still describes them are not read again for their hash.
        """

    @abc.abstractmethod
    def commit(
        self, stage: str, dst: str, contents: Contents, metadata: Mapping[str, Any] | None = None
    ) -> Manifest:
        """Write `metadata.json` (if given) and the manifest; the checkpoint exists from then on."""

    @abc.abstractmethod
    def abort(self, stage: str) -> None:
        """Drop a stage with everything in it."""

    @abc.abstractmethod
    def pre_store_path(self, dst: str) -> Path:
        """Return an empty directory to write checkpoint `dst` into."""

    @abc.abstractmethod
    def post_store_path(
        self,
        src: StrPath,
        dst: str,
        paths: Iterable[str] | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        known: Mapping[str, FileDigest] | None = None,
    ) -> Manifest:
        """Make the directory that `pre_store_path` returned the checkpoint `dst`."""

    @abc.abstractmethod
    def discard(self, path: Path) -> None:
        """Drop the directory that `pre_store_path` returned."""

    # Sharing files between checkpoints.

    def share(self, src: str, path: str, folder: Path, dst: str) -> FileDigest | None:
        """Make a file of checkpoint `src` one of the new checkpoint `dst`, as it is.

        Its bytes are not sent again. `folder` is what `pre_store_path(dst)` returned. None if that
        cannot be done, whatever the reason: then it must be written in full. Call it inside of
        `pinned(src)`.
        """
        try:
            text = self._read(src, MANIFEST_NAME)
            manifest = None if text is None else Manifest.from_json(text, src)
            digest = None if manifest is None else manifest.contents.files.get(path)
            if digest is None or self._damage_since(src, path):
                return None
            return self._share(src, path, folder, dst, digest)
        except Exception as error:  # storages have errors of many kinds
            logger.debug("%s of checkpoint %s cannot be shared: %s", path, src, error)
            return None

    @abc.abstractmethod
    def _share(
        self, src: str, path: str, folder: Path, dst: str, digest: FileDigest
    ) -> FileDigest | None:
        """Link or copy a file with that digest; None or an error if that cannot be done."""

    @contextlib.contextmanager
    def pinned(self, src: str) -> Iterator[None]:
        """Keep a checkpoint from being deleted in the `with` block, where that is possible."""
        yield

    @abc.abstractmethod
    def _note_damage(self) -> None:
        """Record that a file has changed since it was saved: from then on none is shared that was
        written before.
        """

    @abc.abstractmethod
    def _damage_since(self, src: str, path: str) -> bool:
        """Whether damage was noted after that file had been written."""

    @abc.abstractmethod
    def store_path_is_direct_access(self) -> bool:
        """Whether `pre_store_path` lies inside the storage, where every rank can write into it."""

    def import_client(self) -> None:  # noqa: B027  (folders need none)
        """Import what later calls need, before training starts: imports may draw random numbers."""

    def check(self) -> None:
        """Raise now, rather than at the first save, if nothing can be written here."""
        self.abort(self.begin(f"check-{uuid.uuid4()}"))

    @contextlib.contextmanager
    def store_path(self, dst: str) -> Iterator[Path]:
        """Yield a directory that becomes checkpoint `dst` when the body ends without an error."""
        path = self.pre_store_path(dst)
        try:
            yield path
            self.post_store_path(path, dst)
        except BaseException:
            self.discard(path)
            raise

    def upload(self, src: StrPath, dst: str, paths: Iterable[str] | None = None) -> None:
        """Save the directory `src` (only the names in `paths`, if given) as checkpoint `dst`."""
        stage = self.begin(dst)
        try:
            self.commit(stage, dst, self.put(Path(src), stage, paths))
        except BaseException:
            self.abort(stage)
            raise

    # Reading.

    @abc.abstractmethod
    def restore_path(
        self, src: StrPath, selector: Selector | None = None, *, verify: bool = True
    ) -> contextlib.AbstractContextManager[Path]:
        """Yield a directory with the files of checkpoint `src`, valid inside the `with` block."""

    @abc.abstractmethod
    def download(
        self,
        src: StrPath,
        dst: StrPath,
        selector: Selector | None = None,
        *,
        verify: bool = True,
    ) -> None:
        """Copy checkpoint `src` (only the selected paths, if given) into the directory `dst`."""

    @abc.abstractmethod
    def delete(self, tgt: str, globs: list[str]) -> dict[str, int]:
        """Delete what the patterns match (`**/*`: everything); return the resources that remain."""

    def verify(self, src: StrPath) -> bool:
        """Check every file of a checkpoint; False if it has no manifest to check against."""
        try:
            return self._verify(src)
        except InvalidCheckpointException:
            with contextlib.suppress(Exception):  # a storage that can only be read
                self._note_damage()
            raise

    @abc.abstractmethod
    def _verify(self, src: StrPath) -> bool:
        """Do what `verify` says."""

    @abc.abstractmethod
    def sweep(self) -> None:
        """Remove what crashed saves and deletions left behind; never the work of a live process."""

    @property
    @abc.abstractmethod
    def location(self) -> str:
        """Path or URL of the storage, for people."""

    @property
    def base_path(self) -> Path | None:
        """The folder that holds the checkpoints, None if it is not on a local file system."""
        return None

    # Primitives that the listing below is built on.

    @abc.abstractmethod
    def _names(self) -> list[str]:
        """Names that may be checkpoints."""

    @abc.abstractmethod
    def _read(self, name: StrPath, file: str) -> bytes | None:
        """Content of a small file of a checkpoint, None if there is none."""

    @abc.abstractmethod
    def _sizes(self, name: StrPath) -> dict[str, int]:
        """Path to size of all that is stored under a checkpoint; CheckpointNotFound if nothing."""

    @abc.abstractmethod
    def _tag(self, name: str, tag: str) -> None:
        """Record that a checkpoint belongs to the run with that tag."""

    @abc.abstractmethod
    def _untag(self, name: str, tag: str) -> None:
        """Remove that record."""

    @abc.abstractmethod
    def _tags(self, tag: str | None = None) -> dict[str, str]:
        """The tag of each checkpoint that has one, or of those that have this one."""

    def resources(self, src: StrPath) -> dict[str, int]:
        """Return path to size of a checkpoint's files; directories end in `/` and have size 0."""
        sizes = self._sizes(src)
        sizes.pop(MANIFEST_NAME, None)
        return dict(sorted(sizes.items()))

    def get_metadata(self, src: StrPath) -> dict[str, Any]:
        """Return what `metadata.json` of a checkpoint holds, `{}` if it has none."""
        text = self._read(src, METADATA_NAME)
        if text is None:
            self._sizes(src)
            return {}
        return load_json(text, f"{METADATA_NAME} of checkpoint {src}")

    def read_text(self, src: StrPath, file: str) -> bytes | None:
        """Return a small file of a checkpoint, None if it has no such file."""
        return self._read(src, file)

    def list(self, run_id: str | None = None) -> list[StoredCheckpoint]:
        """Return the complete checkpoints (of one run, if given), oldest first.

        Names and sizes are compared with the manifest, contents are not read: see `verify`.
        """
        tags = self._tags() if run_id is not None else {}
        wanted = tag_of(run_id)
        found = self._look_up_all(
            lambda: [name for name in self._names() if tags.get(name, wanted) == wanted]
        )
        if run_id is not None:
            unknown = [c for c in found if c.storage_id not in tags]
            for checkpoint in unknown[: self._MOST_TAGS_AT_ONCE]:
                self._note_run(checkpoint.storage_id, checkpoint.run_id)
            found = [c for c in found if c.run_id == run_id]
        return _in_order(found)

    def list_tagged(self, run_id: str) -> Sequence[StoredCheckpoint]:
        """Like `list`, for a run that has been listed before: reads only its own checkpoints.

        The time depends on how many the run has, not on how many others there are.
        """
        found = []
        for name in self._tags(tag_of(run_id)):
            checkpoint = None
            with contextlib.suppress(CheckpointNotFound):
                checkpoint = self._look_up(name)
            if checkpoint is not None and checkpoint.run_id == run_id:
                found.append(checkpoint)
            else:  # tagged when it was complete, so it is gone or damaged
                self._forget_run(name, run_id)
        return _in_order(found)

    def _note_run(self, name: str, run_id: str | None) -> None:
        """Tag a checkpoint. Tags only save time: one without a tag is read."""
        try:
            self._tag(name, tag_of(run_id))
        except (OSError, CheckpointError) as error:
            logger.debug("Checkpoint %s could not be tagged in %s: %s", name, self.location, error)

    def _forget_run(self, name: str, run_id: str | None) -> None:
        if run_id is None:
            return  # these are never listed by tag
        with contextlib.suppress(OSError, CheckpointError):
            self._untag(name, tag_of(run_id))

    def _run_of(self, name: str) -> str | None:
        """The run of a checkpoint, None if unknown."""
        try:
            return run_id_in(self.get_metadata(name))
        except (CheckpointError, InvalidCheckpointException):
            return None

    def _look_up_all(self, names: Callable[[], Sequence[str]]) -> Sequence[StoredCheckpoint]:
        """List again if one is gone: what replaced it may be newer than the list of names."""
        gone: set[str] = set()

        def look_up(name: str) -> StoredCheckpoint | None:
            try:
                return self._look_up(name)
            except CheckpointNotFound:
                gone.add(name)
                return None

        for _ in range(_MAX_LOOKS):
            gone.clear()
            found = for_each(look_up, names())
            if not gone:
                break
        return [checkpoint for checkpoint in found if checkpoint is not None]

    def _look_up(self, name: str) -> StoredCheckpoint | None:
        try:
            text = self._read(name, MANIFEST_NAME)
            if text is None:
                return None
            manifest = Manifest.from_json(text, name)
            extra = compare(manifest, self._sizes(name), None, name)
            checkpoint = StoredCheckpoint(name, manifest, self._metadata_of(name, manifest), extra)
        except InvalidCheckpointException as error:
            self._report_damage(name, error)
            return None
        self._see_sequence(checkpoint.run_id, manifest.sequence)
        return checkpoint

    def _metadata_of(self, name: str, manifest: Manifest) -> dict[str, Any]:
        """Return the metadata, verified: it decides which run the checkpoint belongs to."""
        text = self._read(name, METADATA_NAME)
        if text is None:
            return {}
        expected = manifest.contents.files.get(METADATA_NAME)
        if expected is not None:
            check_digest(name, METADATA_NAME, digest_bytes(text, expected), expected)
        return load_json(text, f"{METADATA_NAME} of checkpoint {name}")

    def _report_damage(self, name: str, error: Exception) -> None:
        if name not in self._reported_damage:
            self._reported_damage.add(name)
            logger.warning("Skipping a damaged checkpoint in %s. %s", self.location, error)

    def latest(self, run_id: str | None = None) -> StoredCheckpoint | None:
        """Return the exact and intact checkpoint saved last, every byte verified, if there is one.

        Saved last, not trained longest: a run that was started from scratch finds its own.
        """

        def newest_first() -> Iterable[StoredCheckpoint]:
            exact = [checkpoint for checkpoint in self.list(run_id) if checkpoint.is_exact]
            return sorted(exact, key=lambda c: c.manifest.sequence, reverse=True)

        return self._first_intact(newest_first)

    def best(
        self, metric_name: str, smaller_is_better: bool = True, run_id: str | None = None
    ) -> StoredCheckpoint | None:
        """Return the intact checkpoint with the best recorded metric, None if none has it."""
        return self._first_intact(
            lambda: by_metric(self.list(run_id), metric_name, smaller_is_better)
        )

    def _first_intact(
        self, candidates: Callable[[], Iterable[StoredCheckpoint]]
    ) -> StoredCheckpoint | None:
        """List again if a candidate is gone: another process has replaced it by a newer one."""
        for _ in range(_MAX_LOOKS):
            try:
                return next(filter(self._is_intact, candidates()), None)
            except CheckpointNotFound as error:
                logger.debug("Looking for checkpoints again: %s", error)
        raise CheckpointError(
            f"Checkpoints in {self.location} disappear as fast as they are found. Is another run "
            "with the same name using it?"
        )

    def owner_if_foreign(self, name: str) -> str | None:
        """The user who owns a checkpoint, if that is another; None where nobody can tell."""
        return None

    def _is_intact(self, checkpoint: StoredCheckpoint) -> bool:
        """Whether a checkpoint that nobody named can be used."""
        if (owner := self.owner_if_foreign(checkpoint.storage_id)) is not None:
            logger.warning(
                "Skipping checkpoint %s in %s: it belongs to %s. To use it anyway, name it.",
                checkpoint.storage_id,
                self.location,
                owner,
            )
            return False
        try:
            self.verify(checkpoint.storage_id)
            return True
        except InvalidCheckpointException as error:
            self._report_damage(checkpoint.storage_id, error)
            return False

    def _next_sequence(self, run_id: str | None) -> int:
        """A number above those of the run's other checkpoints, whatever the clock says.

        Between runs the clock decides: reading all of them would take too long.
        """
        if run_id is not None and tag_of(run_id) not in self._last_sequences:
            self.list_tagged(run_id)
        last = self._last_sequences.get(tag_of(run_id), 0)
        self._see_sequence(run_id, max(last, time.time_ns() // 1000) + 1)
        return self._last_sequences[tag_of(run_id)]

    def _see_sequence(self, run_id: str | None, sequence: int) -> None:
        tag = tag_of(run_id)
        self._last_sequences[tag] = max(sequence, self._last_sequences.get(tag, 0))

    def _manifest_for(self, contents: Contents, metadata: Mapping[str, Any] | None) -> Manifest:
        steps = (metadata or {}).get("steps_completed")
        return Manifest(contents, self._next_sequence(run_id_in(metadata or {})), steps)
