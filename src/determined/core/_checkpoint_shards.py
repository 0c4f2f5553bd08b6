"""One checkpoint from many ranks: which rank contributes which file, and what must agree."""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from determined.core._distributed import DistributedContext
from determined.core.ranks.agreement import Ranks
from determined.storage import Contents, FileDigest, Selector, StorageManager
from determined.storage._base import list_directory
from determined.storage._durable import digest_file
from determined.storage._manifest import MANIFEST_NAME, METADATA_NAME

StrPath = str | os.PathLike[str]


@dataclass(frozen=True)
class SavedCheckpoint:
    """What was saved, for the records."""

    storage_id: str
    contents: Contents
    metadata: dict[str, Any]


@dataclass
class PendingSave:
    """A directory to write into, and the saved checkpoint once the block has ended."""

    path: Path
    storage_id: str
    saved: SavedCheckpoint | None = None

    @property
    def result(self) -> SavedCheckpoint:
        assert self.saved is not None  # set before the block's end returns
        return self.saved


class ShardedSaver:
    """Saves one checkpoint from all ranks; every method is called on all of them, in step."""

    def __init__(
        self,
        distributed: DistributedContext,
        storage: StorageManager,
        before_commit: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self._distributed = distributed
        self._storage = storage
        self._before_commit = before_commit
        self._ranks = Ranks(distributed)

    def upload(
        self, ckpt_dir: StrPath | None, metadata: dict[str, Any] | None, selector: Selector | None
    ) -> SavedCheckpoint:
        """Save the directories of all ranks as one checkpoint."""

        def identify() -> tuple[Any, bool] | None:
            check_metadata(metadata)
            if ckpt_dir is not None:
                status = Path(ckpt_dir).stat()
                # Device and inode numbers are only meaningful on one machine.
                machine = self._distributed.cross_rank
                return (machine, status.st_dev, status.st_ino), selector is not None
            if selector is not None:
                raise RuntimeError("upload() got a `selector` but no `ckpt_dir` to apply it to.")
            return None

        identities = self._ranks.on_all(identify)
        if all(identity is None for identity in identities):
            raise RuntimeError("upload(shard=True) needs a `ckpt_dir` on at least one rank.")
        if ckpt_dir is None or self._distributed.rank not in uploading_ranks(identities):
            return self._save(None, metadata, None)
        return self._save(Path(ckpt_dir), metadata, selector)

    @contextlib.contextmanager
    def store(
        self, metadata: dict[str, Any] | None, known: Mapping[str, FileDigest] | None
    ) -> Iterator[PendingSave]:
        """Yield a directory for this rank's files; on a file system all ranks share it."""
        if self._storage.store_path_is_direct_access():
            with self._store_in_place(metadata, known) as save:
                yield save
            return
        storage_id = self._ranks.on_first(lambda: str(uuid.uuid4()))
        folder: list[Path] = []
        try:
            self._ranks.on_all(lambda: folder.append(self._storage.pre_store_path(storage_id)))
            save = PendingSave(folder[0], storage_id)
            with self._ranks.leaving_together():
                yield save
            save.saved = self._save(save.path, metadata, None, storage_id, known)
        finally:
            for path in folder:
                self._storage.discard(path)

    @contextlib.contextmanager
    def _store_in_place(
        self, metadata: dict[str, Any] | None, known: Mapping[str, FileDigest] | None
    ) -> Iterator[PendingSave]:
        storage_id, stage = self._ranks.on_first(lambda: self._begin(str(uuid.uuid4())))
        base = self._storage.base_path
        assert base is not None  # direct access means a file system
        save = PendingSave(base / stage, storage_id)
        with self._aborting(stage):
            with self._ranks.leaving_together():
                yield save
            digests: dict[str, FileDigest] = {}
            for part in self._ranks.on_all(lambda: dict(known or {})):
                digests.update(part)
            merged = self._merge_metadata(metadata)

            def finish() -> Contents:
                contents = self._storage.put(save.path, stage, None, digests)
                self._before_commit(storage_id, merged)
                return self._storage.commit(stage, storage_id, contents, merged).contents

            save.saved = SavedCheckpoint(storage_id, self._ranks.on_first(finish), merged)

    def _save(
        self,
        folder: Path | None,
        metadata: dict[str, Any] | None,
        selector: Selector | None,
        storage_id: str | None = None,
        known: Mapping[str, FileDigest] | None = None,
    ) -> SavedCheckpoint:
        chosen = self._ranks.on_all(lambda: select(folder, selector) if folder else {})
        mine = self._settle_conflicts(folder, chosen)
        merged = self._merge_metadata(metadata)
        storage_id, stage = self._ranks.on_first(
            lambda: self._begin(storage_id or str(uuid.uuid4()))
        )
        with self._aborting(stage):
            parts = self._ranks.on_all(
                lambda: self._storage.put(folder, stage, mine, known) if folder else Contents()
            )
            contents = Contents()
            for part in parts:
                contents = contents.merged_with(part)

            def finish() -> Contents:
                self._before_commit(storage_id, merged)
                return self._storage.commit(stage, storage_id, contents, merged).contents

            return SavedCheckpoint(storage_id, self._ranks.on_first(finish), merged)

    def _begin(self, storage_id: str) -> tuple[str, str]:
        return storage_id, self._storage.begin(storage_id)

    @contextlib.contextmanager
    def _aborting(self, stage: str) -> Iterator[None]:
        try:
            yield
        except BaseException:
            if self._distributed.rank == 0:
                self._storage.abort(stage)
            raise

    def _settle_conflicts(self, folder: Path | None, chosen: list[dict[str, int]]) -> set[str]:
        """Return the paths that this rank contributes; equal files come from the lowest rank."""
        rank = self._distributed.rank
        mine = chosen[rank]
        _, conflicts = merge_resources(chosen)
        if not conflicts:
            return set(mine)
        # Contents are read only where sizes are equal.
        undecided = {
            name
            for name, ranks in conflicts.items()
            if len({chosen[other].get(name) for other in ranks}) == 1
        }
        digests = self._ranks.on_all(
            lambda: {
                name: digest_file(folder / name).sha256
                for name in undecided
                if folder is not None and name in mine
            }
        )
        real = {
            name: ranks
            for name, ranks in conflicts.items()
            if name not in undecided or len({digests[other][name] for other in ranks}) > 1
        }
        if real:
            details = describe_conflicts(real) if rank == 0 else " rank 0 lists them."
            raise RuntimeError(f"refusing to upload with files conflicts:{details}")
        return {path for path in mine if path not in conflicts or conflicts[path][0] == rank}

    def _merge_metadata(self, metadata: dict[str, Any] | None) -> dict[str, Any]:
        merged, conflicts = merge_metadata(self._ranks.on_all(lambda: check_metadata(metadata)))
        if conflicts:
            raise RuntimeError(
                f"refusing to upload with metadata conflicts:{describe_conflicts(conflicts)}"
            )
        return merged


def check_metadata(metadata: dict[str, Any] | None) -> dict[str, Any]:
    """Return a copy of the metadata as JSON will give it back, or say what cannot be saved."""
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise TypeError(f"`metadata` must be a dict, got {type(metadata).__name__}.")
    steps = metadata.get("steps_completed", 0)
    if not isinstance(steps, int) or isinstance(steps, bool) or not 0 <= steps < 2**63:
        raise ValueError(
            f"`steps_completed` must be an integer >= 0 and below 2**63, got {steps!r}."
        )
    for key, value in metadata.items():
        try:
            json.dumps({key: value})
        except (TypeError, ValueError) as error:
            raise ValueError(f"`metadata[{key!r}]` cannot be saved as JSON: {error}.") from error
    copy: dict[str, Any] = json.loads(json.dumps(metadata))
    return copy


def select(folder: StrPath, selector: Selector | None) -> dict[str, int]:
    """List a directory as far as the selector wants it, without what a save writes itself."""
    return {
        path: size
        for path, size in list_directory(folder).items()
        if path not in (METADATA_NAME, MANIFEST_NAME) and (selector is None or selector(path))
    }


def merge_metadata(
    all_metadata: Sequence[Mapping[str, Any]],
) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """Merge the ranks' metadata key by key, into nested dictionaries too.

    Returns the merged metadata, in which the lowest rank's value wins, and the conflicts: slash
    path of a key to the ranks that set it, for keys whose values differ.
    """
    conflicts: dict[str, list[int]] = {}
    merged = _merge(dict(enumerate(all_metadata)), "", conflicts)
    return merged, conflicts


def _merge(
    by_rank: Mapping[int, Mapping[str, Any]], prefix: str, conflicts: dict[str, list[int]]
) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for key in dict.fromkeys(key for metadata in by_rank.values() for key in metadata):
        values = {rank: metadata[key] for rank, metadata in by_rank.items() if key in metadata}
        path = f"{prefix}/{key}"
        first = next(iter(values.values()))
        if all(isinstance(value, Mapping) for value in values.values()):
            merged[key] = _merge(values, path, conflicts)
            continue
        merged[key] = first
        if not all(_is_same(value, first) for value in values.values()):
            conflicts[path] = list(values)
    return merged


def _is_same(value: Any, first: Any) -> bool:
    """Say whether two values are the same; a metric may be NaN, which is not equal to itself."""
    return type(value) is type(first) and (value == first or repr(value) == repr(first))


def merge_resources(
    all_resources: Sequence[Mapping[str, int]],
) -> tuple[dict[str, int], dict[str, list[int]]]:
    """Merge the ranks' files and directories.

    Returns the merged resources and the conflicts: path to the ranks that have it, for a file that
    several ranks bring, or a name that is a file here and a directory there.
    """
    merged: dict[str, int] = {}
    owners: dict[str, list[int]] = {}
    files: set[str] = set()
    for rank, resources in enumerate(all_resources):
        for path, size in resources.items():
            merged.setdefault(path, size)
            owners.setdefault(path.rstrip("/"), []).append(rank)
            if not path.endswith("/"):
                files.add(path)
    conflicts = {
        name: list(dict.fromkeys(ranks))
        for name, ranks in owners.items()
        if name in files and len(ranks) > 1
    }
    return merged, conflicts


def describe_conflicts(conflicts: Mapping[str, Sequence[int]]) -> str:
    """One line per conflict, with the ranks."""
    return "".join(
        f"\n    {name} from ranks {', '.join(map(str, ranks))}"
        for name, ranks in sorted(conflicts.items())
    )


def uploading_ranks(
    identities: Sequence[tuple[Any, bool] | None],
) -> set[int]:
    """Return the ranks that contribute files.

    Each identity is None (no directory) or (directory, has a selector): a rank contributes if it
    has a selector, or if it is the lowest rank with that directory.
    """
    contributing: set[int] = set()
    seen: set[Any] = set()
    for rank, identity in enumerate(identities):
        if identity is None:
            continue
        directory, has_selector = identity
        if has_selector or directory not in seen:
            contributing.add(rank)
        seen.add(directory)
    return contributing
