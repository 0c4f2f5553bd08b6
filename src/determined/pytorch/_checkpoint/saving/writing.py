"""The files of checkpoints: what is written, what is shared with the checkpoint before.

Which thread writes, and when, is the business of `saver.py`.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import logging
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from determined._contracts.checkpoint_layout import HASHES, MODELS, STATE, rank_file, shard_file
from determined._contracts.tensor_hashes import TensorHashes
from determined.core import CheckpointContext, DistributedContext
from determined.core.ranks.agreement import Ranks
from determined.core.ranks.joint_saves import JointSave
from determined.pytorch._callback import PyTorchCallback
from determined.pytorch._checkpoint.files.encoding import classes_in
from determined.pytorch._checkpoint.files.export import write_safetensors
from determined.pytorch._checkpoint.files.seal import seal
from determined.pytorch._checkpoint.files.shards import gather, split
from determined.pytorch._checkpoint.files.trust import Trust
from determined.pytorch._checkpoint.saving.code_copy import CodeCopy
from determined.pytorch._checkpoint.saving.frozen import (
    ALWAYS,
    ONCE,
    FrozenFile,
    Last,
    advice,
    take_out,
    unchanged_bytes,
)
from determined.pytorch._checkpoint.saving.job import SaveJob
from determined.pytorch._checkpoint.state.averages import EXPORT, averaged_models
from determined.pytorch._checkpoint.state.hashing import hash_rank, hash_states, hash_tensors
from determined.pytorch._checkpoint.state.training_state import write_side_files
from determined.storage import FileDigest, HashingFile
from determined.storage._durable import checkpoint_errors, write_file

logger = logging.getLogger("determined.pytorch")

Known = dict[str, FileDigest]


@dataclasses.dataclass(frozen=True)
class Parts:
    """What a rank writes of a checkpoint with split tensors: shards, its own state, on the chief
    the state of all.
    """

    job: SaveJob
    rank: int
    tensors: Any
    own: Any
    shards: dict[str, Any]
    whole_models: Any


class CheckpointWriter:
    """Writes checkpoints, one at a time; knows the last one, whose files the next may share."""

    def __init__(
        self,
        checkpoint: CheckpointContext,
        callbacks: Mapping[str, PyTorchCallback],
        code: CodeCopy,
        *,
        export: str | None,
        save_frozen: str,
        on_saved: Callable[[str, SaveJob], None],
    ) -> None:
        self._checkpoint = checkpoint
        self.callbacks = callbacks
        self._code = code
        self._export = export
        self._save_frozen = save_frozen
        self._on_saved = on_saved
        self._last: Last | None = None
        self._has_advised = False

    def continue_from(self, last: Last) -> None:
        """Share frozen weights with a checkpoint of the same storage: this run started from it."""
        self._last = last

    def write(self, job: SaveJob) -> str:
        """Write a checkpoint that one process has whole; return its id once it exists."""
        known, facts = Known(), dict[str, Any]()
        with contextlib.ExitStack() as stack:
            if self._last is not None and self._save_frozen == ONCE:
                stack.enter_context(self._checkpoint._pinned(self._last.storage_id))
            store = self._checkpoint.store_path(job.metadata, known=known, facts=facts)
            path, storage_id = stack.enter_context(store)
            hashes = self._write_common(path, storage_id, job, known)
            facts["hashes"] = hashes.to_record()
        self._saved(storage_id, job, hashes)
        return storage_id

    def parts(self, job: SaveJob, distributed: DistributedContext) -> Parts:
        """Return what this rank writes of a checkpoint of which each has a part."""
        job = job.plain()
        tensors, shards = split(job.tensors, "checkpoint")
        own, own_shards = split(job.ranks[0], "rank")
        whole_models = gather(self._exported(job)) if self._export else None
        return Parts(job, distributed.rank, tensors, own, {**shards, **own_shards}, whole_models)

    def write_together(self, parts: Parts, distributed: DistributedContext) -> str:
        """Write a checkpoint in step with the other ranks; return its id once it exists."""
        known, facts = Known(), dict[str, Any]()
        metadata = parts.job.metadata if parts.rank == 0 else None
        store = self._checkpoint.store_path(metadata, shard=True, known=known, facts=facts)
        with store as (path, storage_id):
            hashed = Ranks(distributed).on_all(lambda: self._write_part(path, parts, known))
            if parts.rank == 0:
                hashes = self._write_chiefs(path, storage_id, parts, known, hashed)
                facts["hashes"] = hashes.to_record()
        if parts.rank == 0:
            self._saved(storage_id, parts.job, hashes)
        return storage_id

    def write_jointly(self, parts: Parts, save: JointSave, before: Callable[[], None]) -> str:
        """Write a checkpoint with the other ranks, in the background of each; `before` first."""
        known = Known()
        hashes: list[TensorHashes] = []

        def write() -> dict[str, str]:
            before()
            return self._write_part(save.path, parts, known)

        def finish(hashed: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            found = self._write_chiefs(save.path, save.storage_id, parts, known, hashed)
            hashes.append(found)
            return parts.job.metadata, {"hashes": found.to_record()}

        self._checkpoint._finish_together(save, write, known, finish)
        if parts.rank == 0:
            self._saved(save.storage_id, parts.job, hashes[0])
        return save.storage_id

    def _write_part(self, path: pathlib.Path, parts: Parts, known: Known) -> dict[str, str]:
        """Write the files of this rank; return the hashes of what is in them."""
        self._write_tensors(path, shard_file(parts.rank), parts.shards, known)
        self._write_tensors(path, rank_file(parts.rank), parts.own, known)
        shards = {f"shards/{parts.rank}/{key}": part for key, (_, part) in parts.shards.items()}
        return hash_tensors(shards) | hash_rank(parts.rank, parts.own)

    def _saved(self, storage_id: str, job: SaveJob, hashes: TensorHashes) -> None:
        self._code.is_in(self._checkpoint.storage_base, storage_id)
        if self._last is not None and self._save_frozen == ALWAYS and not self._has_advised:
            sizes = unchanged_bytes(job.tensors, job.frozen, hashes.tensors, self._last.hashes)
            if (text := advice(*sizes)) is not None:
                self._has_advised = True
                logger.warning(text)
        self._last = Last(storage_id, hashes)
        self._on_saved(storage_id, job)

    def _write_chiefs(
        self,
        path: pathlib.Path,
        storage_id: str,
        parts: Parts,
        known: Known,
        hashed: Sequence[Mapping[str, str]],
    ) -> TensorHashes:
        job = dataclasses.replace(parts.job, tensors=parts.tensors, ranks=[])
        of_ranks = {name: value for found in hashed for name, value in found.items()}
        return self._write_common(path, storage_id, job, known, parts.whole_models, of_ranks)

    def _write_common(
        self,
        path: pathlib.Path,
        storage_id: str,
        job: SaveJob,
        known: Known,
        whole_models: Any = None,
        of_ranks: Mapping[str, str] | None = None,
    ) -> TensorHashes:
        """Write what is not of a single rank, and show all files to callbacks."""
        with checkpoint_errors("write files into", path):
            with concurrent.futures.ThreadPoolExecutor(3, thread_name_prefix="det-save") as helpers:
                code = helpers.submit(self._code.write_into, path)
                hashed = helpers.submit(hash_states, job.tensors, job.ranks)
                ranks = helpers.submit(self._write_ranks, path, job, known)
                tensors, files = job.tensors, dict[str, FrozenFile]()
                if self._save_frozen == ONCE and job.frozen:
                    tensors, files = take_out(tensors, job.frozen, hashed.result(), self._last)
                for name, file in files.items():
                    self._write_frozen(path, storage_id, name, file, known)
                self._write_tensors(path, STATE, tensors, known)
            known.update(code.result())
            ranks.result()
            hashes = TensorHashes(
                {**hashed.result(), **(of_ranks or {})},
                job.data,
                {name: file.as_json() for name, file in files.items()},
            )
            known[HASHES] = write_file(path / HASHES, hashes.to_json())
            record = dataclasses.replace(
                job.run, best_checkpoint=job.replaceable(storage_id), seal=_seal(job, known)
            )
            write_side_files(path, job.state, record, job.load_data)
            if self._export is not None:
                weights = "averaged" if self._export == EXPORT else "trained"
                write_safetensors(path, whole_models or self._exported(job), weights)
        for callback in self.callbacks.values():
            callback.on_checkpoint_end(str(path))
            callback.on_checkpoint_write_end(str(path))
        return hashes

    def _write_frozen(
        self,
        path: pathlib.Path,
        storage_id: str,
        name: str,
        file: FrozenFile,
        known: Known,
    ) -> None:
        """Share a file with the last checkpoint, or write it where that is not possible."""
        if file.is_known and self._last is not None:
            digest = self._checkpoint._share(self._last.storage_id, name, path, storage_id)
            if digest is not None:
                known[name] = digest
                return
        self._write_tensors(path, name, file.tensors, known)

    def _write_ranks(self, path: pathlib.Path, job: SaveJob, known: Known) -> None:
        for rank, tensors in enumerate(job.ranks):
            self._write_tensors(path, rank_file(rank), tensors, known)

    def _write_tensors(self, path: pathlib.Path, name: str, tensors: Any, known: Known) -> None:
        # What goes to an object store is read again at once.
        is_local = self._checkpoint.storage_base is not None
        with checkpoint_errors("write", path / name):
            with contextlib.suppress(FileExistsError):  # `exist_ok` raises it if it vanishes now
                (path / name).parent.mkdir()
            with HashingFile(path / name, past_cache=is_local) as file:
                torch.save(tensors, file)
        known[name] = file.digest

    def _exported(self, job: SaveJob) -> Any:
        is_average = self._export == EXPORT
        return averaged_models(job.tensors) if is_average else job.tensors[MODELS]


def _seal(job: SaveJob, known: Mapping[str, FileDigest]) -> dict[str, Any] | None:
    """Seal the files with objects, if loading these takes trust."""
    trust = Trust()
    names = classes_in([job.tensors, job.ranks])
    return seal(job.run.run_id, known) if any(trust.find(n) is None for n in names) else None
