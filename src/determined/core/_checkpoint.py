"""CheckpointContext: save, restore, find and delete the checkpoints of a run."""

from __future__ import annotations

import contextlib
import enum
import functools
import logging
import os
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from determined.core._checkpoint_shards import (
    SavedCheckpoint,
    ShardedSaver,
    check_metadata,
    merge_metadata,
    merge_resources,
    select,
)
from determined.core._distributed import DistributedContext
from determined.core.ranks.agreement import Ranks
from determined.core.ranks.joint_saves import JointSave, JointSaves
from determined.errors import CheckpointError, CheckpointNotFound, JournalError
from determined.storage import (
    FileDigest,
    RetentionPolicy,
    Selector,
    SharedFSStorageManager,
    StorageManager,
    apply_retention,
    build,
    default_location,
    from_string,
    validate_manager,
)

__all__ = [
    "CheckpointContext",
    "DownloadMode",
    "DummyCheckpointContext",
    "build_local",
    "merge_metadata",
    "merge_resources",
]

logger = logging.getLogger("determined.core")

StrPath = str | os.PathLike[str]

_MAX_LOOKS = 20


class DownloadMode(enum.Enum):
    """How the ranks of a machine share a download."""

    LocalWorkersShareDownload = "LOCAL_WORKERS_SHARE_DOWNLOAD"
    """All ranks call in step, one per machine transfers the data."""
    NoSharedDownload = "NO_SHARED_DOWNLOAD"
    """Each caller downloads for itself."""


class CheckpointRecorder(Protocol):
    """Receives reports about checkpoints; every `Backend` is one."""

    def before_save(self, storage_id: str, metadata: dict[str, Any]) -> None: ...

    def report_checkpoint(self, record: dict[str, Any]) -> None: ...

    def checkpoint_deleted(self, storage_id: str) -> None: ...


class CheckpointContext:
    """Checkpoints of this run: stored atomically, verified when read, and found by name."""

    def __init__(
        self,
        distributed: DistributedContext,
        storage_manager: StorageManager | None = None,
        backend: CheckpointRecorder | None = None,
    ) -> None:
        self._distributed = distributed
        self._given_storage = storage_manager
        self._backend = backend
        self._elsewhere: dict[str, StorageManager] = {}
        self._ranks = Ranks(distributed)
        self._local_ranks = Ranks(distributed, local=True)

    @functools.cached_property
    def _storage(self) -> StorageManager:
        """The storage; the default one is built when it is first needed."""
        return self._given_storage or _build_storage(None)

    def _read_elsewhere(self, storage_id: str, storage: Mapping[str, Any]) -> None:
        """Read this one checkpoint, which a trial starts from, where it was saved."""
        self._elsewhere[storage_id] = build(storage)
        self._elsewhere[storage_id].import_client()

    def _storage_of(self, storage_id: str) -> StorageManager:
        return self._elsewhere.get(storage_id) or self._storage

    @functools.cached_property
    def _shards(self) -> ShardedSaver:
        return ShardedSaver(self._distributed, self._storage, self._before_save)

    @functools.cached_property
    def _joint_saves(self) -> JointSaves:
        return JointSaves(self._distributed, self._storage, self._before_save)

    @property
    def storage_base(self) -> Path | None:
        """The folder of the checkpoints; None if they are not on a file system."""
        return self._storage.base_path

    def check_object_store(self) -> None:
        """Raise unless a checkpoint can be saved and read; folders are checked by the platform."""
        if self.storage_base is None:
            validate_manager(self._storage)

    # Saving.

    def _check_storage(self) -> None:
        """Raise on all ranks, which call it together, if nothing can be stored."""
        self._ranks.on_first(self._storage.check)

    def upload(
        self,
        ckpt_dir: StrPath | None,
        metadata: dict[str, Any] | None = None,
        *,
        shard: bool = False,
        selector: Selector | None = None,
    ) -> str:
        """Save a directory as a new checkpoint and return its storage id.

        Without `shard`, for the chief only. With `shard`, all ranks call in step and each brings
        the files of its own directory (`None`: no files). The directory itself is not changed.

        Args:
            ckpt_dir: the directory whose content is saved.
            metadata: JSON data, saved as `metadata.json`.
            shard: whether all ranks save together.
            selector: returns whether to save a relative path.
        """
        if shard:
            saved = self._shards.upload(ckpt_dir, metadata, selector)
            self._ranks.on_first(lambda: self._report(saved))
            return saved.storage_id
        self._check_chief("upload")
        if ckpt_dir is None:
            raise RuntimeError("`ckpt_dir` of upload(shard=False) is required, got None.")
        checked = check_metadata(metadata)
        paths = select(ckpt_dir, selector)
        storage_id = str(uuid.uuid4())
        stage = self._storage.begin(storage_id)
        try:
            contents = self._storage.put(Path(ckpt_dir), stage, paths)
            self._before_save(storage_id, checked)
            manifest = self._storage.commit(stage, storage_id, contents, checked)
        except BaseException:
            self._storage.abort(stage)
            raise
        self._report(SavedCheckpoint(storage_id, manifest.contents, checked))
        return storage_id

    @contextlib.contextmanager
    def store_path(
        self,
        metadata: dict[str, Any] | None = None,
        *,
        shard: bool = False,
        known: Mapping[str, FileDigest] | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> Iterator[tuple[Path, str]]:
        """Yield a directory to write a new checkpoint into, and its storage id.

        The checkpoint exists once the `with` block ends without an error; otherwise nothing remains
        of it. Without `shard`, for the chief only, on any thread, without collectives. With
        `shard`, all ranks enter and leave together, and an error on one fails the save on all.

        Args:
            metadata: JSON data, saved as `metadata.json` as it is at the end of the block.
            shard: whether all ranks save together.
            known: digests of files written with `HashingFile`, by relative path; may be filled
                inside the block. These files are not read again.
            facts: what else the record of the checkpoint is to have, such as its `hashes`; may be
                filled inside the block.
        """
        if shard:
            with self._shards.store(metadata, known) as save:
                yield save.path, save.storage_id
            self._ranks.on_first(lambda: self._report(save.result, facts))
            return
        self._check_chief("store_path")
        check_metadata(metadata)
        storage_id = str(uuid.uuid4())
        path = self._storage.pre_store_path(storage_id)
        try:
            yield path, storage_id
            checked = check_metadata(metadata)
            self._before_save(storage_id, checked)
            manifest = self._storage.post_store_path(
                path, storage_id, metadata=checked, known=known
            )
        except BaseException:
            self._storage.discard(path)
            raise
        self._report(SavedCheckpoint(storage_id, manifest.contents, checked), facts)

    def _begin_together(self) -> JointSave:
        """Begin a checkpoint that all ranks write in the background. All call it, in step."""
        return self._joint_saves.begin()

    def _finish_together(
        self,
        save: JointSave,
        write: Callable[[], Any],
        known: Mapping[str, FileDigest],
        finish: Callable[[Sequence[Any]], tuple[dict[str, Any], Mapping[str, Any]]],
    ) -> None:
        """Write this rank's part of a checkpoint; return when it exists, or raise on all ranks.

        On any thread of each rank, one such save at a time; no collectives.

        Args:
            save: what `_begin_together` returned.
            write: writes the files of this rank into `save.path`; its result goes to the chief.
            known: digests of the files, by relative path; filled by `write` and `finish`.
            finish: runs on the chief when all ranks have written, with what their `write` returned.
                Writes what is left; returns the metadata, and facts for the record.
        """
        with self._joint_saves.writing(save, write, known) as written:
            if written is not None:
                metadata, facts = finish(written.results)
                saved = self._joint_saves.commit(save, written, check_metadata(metadata), known)
                self._report(saved, facts)

    def _own_id(self, name: str) -> str | None:
        """Return the id of a checkpoint, given by id or path, if it is in this storage."""
        base = self.storage_base
        if Path(name).is_absolute():
            is_here = base is not None and Path(name).parent.resolve() == base.resolve()
            return Path(name).name if is_here else None
        return name if self._storage_of(name) is self._storage else None

    def _share(self, storage_id: str, path: str, folder: Path, new: str) -> FileDigest | None:
        """Make a file of a checkpoint one of the new one that `store_path` yielded, as it is.

        None if the storage cannot do that without the bytes: then write it in full.
        """
        return self._storage.share(storage_id, path, folder, new)

    def _pinned(self, storage_id: str) -> contextlib.AbstractContextManager[None]:
        """Keep a checkpoint of this storage from being deleted in the `with` block."""
        return self._storage.pinned(storage_id)

    def _check_chief(self, method: str) -> None:
        if self._distributed.rank != 0:
            raise RuntimeError(
                f"CheckpointContext.{method}(shard=False) was called on a non-chief rank "
                f"({self._distributed.rank}): call it on rank 0 only, or with shard=True on all."
            )

    def _before_save(self, storage_id: str, metadata: dict[str, Any]) -> None:
        """Sync reports to disk first: a run that resumes from this checkpoint won't repeat them."""
        if self._backend is None:
            return
        try:
            self._backend.before_save(storage_id, metadata)
        except JournalError as error:
            raise CheckpointError(
                f"The checkpoint is not saved, because its metrics cannot be: {error}"
            ) from error

    def _report(self, saved: SavedCheckpoint, facts: Mapping[str, Any] | None = None) -> None:
        logger.info("Saved checkpoint %s in %s.", saved.storage_id, self._storage.location)
        if self._backend is None:
            return
        resources = saved.contents.resources
        self._backend.report_checkpoint(
            {
                "uuid": saved.storage_id,
                "report_time": datetime.now(timezone.utc).isoformat(),
                "state": "COMPLETED",
                "resources": resources,
                "metadata": saved.metadata,
                "size": sum(resources.values()),
                "steps_completed": saved.metadata.get("steps_completed"),
                "storage": self._storage.location,
                "hashes": (facts or {}).get("hashes", ""),
            }
        )

    # Reading.

    def download(
        self,
        storage_id: str,
        ckpt_dir: StrPath,
        download_mode: DownloadMode = DownloadMode.LocalWorkersShareDownload,
        *,
        selector: Selector | None = None,
        verify: bool = True,
    ) -> None:
        """Copy a checkpoint into `ckpt_dir`; every file is checked before it appears there.

        In the default mode all ranks call in step, and the first rank of each machine downloads
        what any rank of that machine selects.
        """
        storage = self._storage_of(storage_id)
        if DownloadMode(download_mode) is DownloadMode.NoSharedDownload:
            storage.download(storage_id, ckpt_dir, selector, verify=verify)
            return
        joint = self._joint_selector(storage_id, selector)
        self._local_ranks.on_first(
            lambda: storage.download(storage_id, ckpt_dir, joint, verify=verify)
        )

    @contextlib.contextmanager
    def restore_path(
        self,
        storage_id: str,
        download_mode: DownloadMode = DownloadMode.LocalWorkersShareDownload,
        *,
        selector: Selector | None = None,
        verify: bool = True,
    ) -> Iterator[Path]:
        """Yield a directory with the checkpoint's files, valid inside the `with` block.

        In the default mode all ranks enter and leave in step; the ranks of a machine get the same
        path. A local storage also takes the absolute path of a checkpoint folder.
        """
        storage = self._storage_of(storage_id)
        if DownloadMode(download_mode) is DownloadMode.NoSharedDownload:
            with storage.restore_path(storage_id, selector, verify=verify) as path:
                yield path
            return
        joint = self._joint_selector(storage_id, selector)
        with contextlib.ExitStack() as stack:
            restored = storage.restore_path(storage_id, joint, verify=verify)
            path = self._local_ranks.on_first(lambda: stack.enter_context(restored))
            with self._local_ranks.leaving_together():
                yield path

    @contextlib.contextmanager
    def restore_named(
        self,
        name: str,
        run_id: str | None = None,
        *,
        metric_name: str | None = None,
        smaller_is_better: bool = True,
    ) -> Iterator[tuple[str, Path]]:
        """Restore what `resolve` finds; yield its storage id and the directory.

        All ranks enter and leave in step. If another process deletes the checkpoint before it can
        be protected (a run that still saves newer ones may), they resolve it again.
        """
        with contextlib.ExitStack() as stack:
            for _ in range(_MAX_LOOKS):
                storage_id = self.resolve(
                    name, run_id, metric_name=metric_name, smaller_is_better=smaller_is_better
                )
                paths: list[Path] = []
                with contextlib.suppress(CheckpointNotFound):
                    paths.append(stack.enter_context(self.restore_path(storage_id)))
                if all(self._ranks.on_all(partial(bool, paths))):
                    yield storage_id, paths[0]
                    return
                stack.close()
        raise CheckpointError(
            f"Checkpoint {storage_id} in {self._storage.location} was deleted in the meantime. Is "
            "another run with the same name using it?"
        )

    def _joint_selector(self, storage_id: str, selector: Selector | None) -> Selector | None:
        """Select what any rank of this machine selects; None if no rank has a selector."""
        if not any(self._local_ranks.on_all(lambda: selector is not None)):
            return None
        storage = self._storage_of(storage_id)
        names = self._local_ranks.on_first(lambda: list(storage.resources(storage_id)))
        wanted = self._local_ranks.on_all(
            lambda: [name for name in names if selector is None or selector(name)]
        )
        return {name for names in wanted for name in names}.__contains__

    def get_metadata(self, storage_id: str) -> dict[str, Any]:
        """Return the metadata that was saved with a checkpoint, `{}` if there was none."""
        return self._storage_of(storage_id).get_metadata(storage_id)

    def verify(self, storage_id: str) -> bool:
        """Check every byte of a checkpoint; False if it has no checksums."""
        return self._storage_of(storage_id).verify(storage_id)

    def resolve(
        self,
        name: str,
        run_id: str | None = None,
        *,
        metric_name: str | None = None,
        smaller_is_better: bool = True,
    ) -> str:
        """Return the storage id of `"latest"` or `"best"`; any other name is returned as it is.

        All ranks call in step and get the same answer. Damaged checkpoints are skipped, with a
        warning; the one returned is verified. `latest` is an exact one: what was saved after an
        error in user code is skipped as well. CheckpointNotFound if there is none.
        """
        if name not in ("latest", "best"):
            return name
        if name == "best" and metric_name is None:
            raise ValueError("`metric_name` is required to find the best checkpoint.")

        def find() -> str:
            if name == "latest":
                found = self._storage.latest(run_id)
            else:
                found = self._storage.best(str(metric_name), smaller_is_better, run_id)
            if found is None:
                of_run = f" of run {run_id}" if run_id is not None else ""
                raise CheckpointNotFound(
                    f"There is no complete checkpoint{of_run} in {self._storage.location}."
                )
            return found.storage_id

        return self._ranks.on_first(find)

    def newest_inexact(self, run_id: str | None = None) -> str | None:
        """Return the checkpoint that `latest` skips because it is not exact, None if there is none.

        Only one that was saved after all exact ones counts. All ranks call in step.
        """

        def find() -> str | None:
            found = sorted(self._storage.list(run_id), key=lambda c: c.manifest.sequence)
            return None if not found or found[-1].is_exact else found[-1].storage_id

        return self._ranks.on_first(find)

    # Deleting.

    def delete(self, storage_id: str) -> None:
        """Remove all files of a checkpoint; one that does not exist is no error."""
        self._storage.delete(storage_id, ["**/*"])
        self._report_deleted(storage_id)

    def apply_retention(
        self, policy: RetentionPolicy, run_ids: Collection[str], protected: Collection[str] = ()
    ) -> list[str]:
        """Delete what the policy does not keep of these runs' checkpoints; return the ids.

        For the chief, on any thread. `determined.storage.apply_retention` says what is always kept.
        """
        return apply_retention(
            self._storage, policy, run_ids, protected=protected, on_delete=self._report_deleted
        )

    def _report_deleted(self, storage_id: str) -> None:
        if self._backend is not None:
            self._backend.checkpoint_deleted(storage_id)


class DummyCheckpointContext(CheckpointContext):
    """A CheckpointContext that reports nothing."""

    def __init__(self, dist: DistributedContext, storage_manager: StorageManager) -> None:
        super().__init__(dist, storage_manager)


def build_local(
    distributed: DistributedContext,
    checkpoint_storage: str | Mapping[str, Any] | os.PathLike[str] | None,
    backend: CheckpointRecorder | None = None,
) -> CheckpointContext:
    """Build the context over the storage that a path, URL or config names.

    None means DET_STORAGE, else the user's data directory. The chief logs where checkpoints go and
    removes what a crashed run left there.
    """
    manager = _build_storage(checkpoint_storage)
    manager.import_client()
    if distributed.rank == 0:
        logger.info("Checkpoints are stored in %s.", manager.location)
        manager.sweep()
    return CheckpointContext(distributed, manager, backend)


def _build_storage(
    checkpoint_storage: str | Mapping[str, Any] | os.PathLike[str] | None,
) -> StorageManager:
    if checkpoint_storage is None:
        checkpoint_storage = default_location()
    if isinstance(checkpoint_storage, Mapping):
        return build(checkpoint_storage)
    if isinstance(checkpoint_storage, str):
        return from_string(checkpoint_storage)
    if isinstance(checkpoint_storage, os.PathLike):
        return SharedFSStorageManager(checkpoint_storage)
    raise TypeError(
        "`checkpoint_storage` must be a path, a URL such as s3://bucket/prefix or a config "
        f"dictionary, got {checkpoint_storage!r}."
    )
