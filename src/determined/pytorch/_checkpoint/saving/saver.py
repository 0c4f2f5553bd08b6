"""Writes checkpoints: a copy of the state first, the files in the background."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import logging
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

import torch

from determined._code.user_code import archive_user_code, unpack_user_code
from determined._contracts.checkpoint_layout import (
    APEX,
    CALLBACKS,
    CODE,
    HASHES,
    MODELS,
    MODULES,
    OPTIMIZERS,
    RANDOM,
    SCALER,
    SCHEDULERS,
    STATE,
    rank_file,
    shard_file,
)
from determined._contracts.tensor_hashes import TensorHashes
from determined.core import CheckpointContext, DistributedContext
from determined.core.ranks.agreement import Ranks
from determined.core.ranks.joint_saves import JointSave
from determined.errors import CheckpointError
from determined.pytorch._callback import Hooks, PyTorchCallback
from determined.pytorch._checkpoint.files.encoding import classes_in, to_plain
from determined.pytorch._checkpoint.files.export import write_safetensors
from determined.pytorch._checkpoint.files.seal import seal
from determined.pytorch._checkpoint.files.shards import gather, split
from determined.pytorch._checkpoint.files.trust import Trust
from determined.pytorch._checkpoint.saving.frozen import (
    ALWAYS,
    ONCE,
    FrozenFile,
    Last,
    Place,
    advice,
    take_out,
    unchanged_bytes,
)
from determined.pytorch._checkpoint.state.averages import EXPORT, averaged_models
from determined.pytorch._checkpoint.state.hashing import hash_rank, hash_states, hash_tensors
from determined.pytorch._checkpoint.state.snapshot import Snapshot
from determined.pytorch._checkpoint.state.training_state import RunRecord, write_side_files
from determined.pytorch._instrumentation.observer import UNOBSERVED, Observer
from determined.pytorch._schedule import _TrialState
from determined.storage import FileDigest, HashingFile
from determined.storage._durable import checkpoint_errors, digest_file, write_file

logger = logging.getLogger("determined.pytorch")

# A callback that overrides one of these must see the files before training continues.
_HOOKS_ON_FILES = ("on_checkpoint_end", "on_checkpoint_write_end", "on_checkpoint_upload_end")


@dataclasses.dataclass(frozen=True)
class SaveJob:
    """Everything one checkpoint consists of.

    `is_best` if the policy had it written as the best so far; `is_asked_for` if it would have been
    written anyway; `is_copy` if its tensors are what `Saver.copy` returned. `frozen` are weights
    that require no gradient, `data` says what was trained on since the last checkpoint.
    """

    tensors: dict[str, Any]
    ranks: list[dict[str, Any]]
    state: _TrialState
    run: RunRecord
    load_data: Mapping[str, Any]
    metadata: dict[str, Any]
    is_best: bool
    is_asked_for: bool
    is_copy: bool = False
    frozen: Mapping[Place, str] = dataclasses.field(default_factory=dict)
    data: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def plain(self) -> SaveJob:
        """Return the same with states of plain values only, which can be read again."""
        if self.is_copy:  # made of plain values already, but for what a callback added
            own = (MODELS, OPTIMIZERS, SCHEDULERS, CALLBACKS, RANDOM, MODULES, SCALER, APEX)
            tensors = {k: v if k in own else to_plain(v) for k, v in self.tensors.items()}
            return dataclasses.replace(self, tensors=tensors)
        return dataclasses.replace(
            self, tensors=to_plain(self.tensors), ranks=[to_plain(rank) for rank in self.ranks]
        )

    def replaceable(self, storage_id: str) -> str | None:
        """Return which checkpoint the next best one replaces, once this one is stored."""
        if not self.is_best:
            return self.run.best_checkpoint
        return None if self.is_asked_for else storage_id


@dataclasses.dataclass(frozen=True)
class _Parts:
    """What a rank writes of a checkpoint with split tensors: shards, its own state, on the chief
    the state of all.
    """

    job: SaveJob
    rank: int
    tensors: Any
    own: Any
    shards: dict[str, Any]
    whole_models: Any

    def write(self, path: pathlib.Path, known: dict[str, FileDigest]) -> dict[str, str]:
        """Write the files of this rank; return the hashes of what is in them."""
        _write_tensors(path, shard_file(self.rank), self.shards, known)
        _write_tensors(path, rank_file(self.rank), self.own, known)
        shards = {f"shards/{self.rank}/{key}": part for key, (_, part) in self.shards.items()}
        return hash_tensors(shards) | hash_rank(self.rank, self.own)


class Saver:
    """Saves on the chief, one checkpoint at a time; a failure comes out at the next call."""

    def __init__(
        self,
        checkpoint: CheckpointContext,
        callbacks: Mapping[str, PyTorchCallback],
        hooks: Hooks,
        *,
        background: bool,
        goes_on_after_errors: bool,
        export: str | None,
        code: pathlib.Path,
        outside_code: list[pathlib.Path],
        on_saved: Callable[[str, SaveJob], None],
        observer: Observer = UNOBSERVED,
        save_frozen: str = ALWAYS,
    ) -> None:
        self._checkpoint = checkpoint
        self.callbacks = callbacks
        self.is_synchronous = not background or any(map(hooks.of, _HOOKS_ON_FILES))
        self._goes_on_after_errors = goes_on_after_errors
        self._export = export
        self._on_saved = on_saved
        self._observer = observer
        self._save_frozen = save_frozen
        self._last: Last | None = None
        self._has_advised = False
        self._snapshot = Snapshot()
        self.can_copy = True
        self._code = _CodeCopy(code, outside_code)
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="det-save")
        self._code_taken: concurrent.futures.Future[None] | None = None
        self._pending: concurrent.futures.Future[str] | None = None
        self.failure: Exception | None = None
        self.is_writing = False

    def start(self) -> None:
        """Copy the user's code as it is now, without waiting for it."""
        # The first temporary file of a process is made under a lock. Loader workers that are forked
        # while the thread holds it would wait for it for ever.
        with contextlib.suppress(OSError), tempfile.TemporaryDirectory():
            pass
        self._code_taken = self._thread.submit(self._code.take)

    def continue_from(self, storage_id: str, hashes: TensorHashes) -> None:
        """Share frozen weights with a checkpoint of the same storage: this run started from it."""
        self._last = Last(storage_id, hashes)

    def save(self, job: SaveJob) -> str | None:
        """Write a checkpoint and return its id, or begin to write it and return None."""
        self.wait()
        write = self._observer.watch("background save", self._write)
        job = job.plain()
        copied = (job.tensors, job.ranks)
        if not job.is_copy and not self.is_synchronous:
            copied = self._try_to_copy(copied)
        if self.is_synchronous:
            with self._policy_on_errors():
                return write(job)
            return None
        job = dataclasses.replace(
            job,
            tensors=copied[0],
            ranks=copied[1],
            state=dataclasses.replace(job.state),
            run=dataclasses.replace(job.run),
        )
        self._pending = self._thread.submit(write, job)
        return None

    def copy(self, state: Any) -> Any:
        """Copy a state into main memory, as plain values; it holds until the next copy or save.

        None if it cannot be copied.
        """
        self.wait()
        return self._try_to_copy(to_plain(state))

    def _try_to_copy(self, plain: Any) -> Any:
        """Return a copy, or None: then files are written while training waits from here on.

        A tensor subclass may not know how to be copied, and its state is to be saved all the same.
        """
        if not self.can_copy:
            return None
        try:
            return self._snapshot.begin_copy(plain)
        except Exception as e:
            self.can_copy, self.is_synchronous = False, True
            logger.warning(
                "Checkpoints are written while training waits, since their content cannot be "
                f"copied in main memory: {type(e).__name__}: {e}"
            )
            return None

    def save_together(self, job: SaveJob, distributed: DistributedContext) -> str | None:
        """Write a checkpoint of which each rank has a part: `job.ranks` is the state of this one.

        All ranks call it, in step. It is done when they return the id; if they return None, it is
        being written in the background.
        """
        self.wait()
        ranks, parts = Ranks(distributed), self._parts(job, distributed)
        copied: Any = None
        if not any(ranks.on_all(lambda: self.is_synchronous)):
            copied = self._try_to_copy((parts.tensors, parts.own, parts.shards))
        if not all(ranks.on_all(lambda: copied is not None)):
            self.is_writing = True
            try:
                with self._policy_on_errors():
                    return self._write_together(parts, distributed)
                return None
            finally:
                self.is_writing = False
        tensors, own, shards = copied
        run, state = dataclasses.replace(job.run), dataclasses.replace(job.state)
        parts = dataclasses.replace(
            parts,
            job=dataclasses.replace(job, tensors=tensors, ranks=[own], run=run, state=state),
            tensors=tensors,
            own=own,
            shards=shards,
        )
        with self._policy_on_errors():
            save = self._checkpoint._begin_together()
            write = self._observer.watch("background save", self._write_in_background)
            self._pending = self._thread.submit(write, parts, save)
        return None

    def _parts(self, job: SaveJob, distributed: DistributedContext) -> _Parts:
        job = job.plain()
        tensors, shards = split(job.tensors, "checkpoint")
        own, own_shards = split(job.ranks[0], "rank")
        whole_models = gather(self._exported(job)) if self._export else None
        return _Parts(job, distributed.rank, tensors, own, {**shards, **own_shards}, whole_models)

    def raise_failure(self) -> None:
        """Raise what went wrong in the background, if anything did; do not wait."""
        if self._pending is not None and self._pending.done():
            self.wait()

    def wait(self) -> None:
        """Wait until nothing is under way; raise what went wrong."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            with self._policy_on_errors():
                pending.result()

    def finish(self) -> None:
        """Wait for the last checkpoint; it must have worked, whatever the policy on errors says."""
        if self.failure is not None and self._pending is None:
            raise self.failure
        self._goes_on_after_errors = False
        self.wait()

    def close(self) -> None:
        """End the background work. A failure that nobody waited for is logged."""
        try:
            self.wait()
        except Exception as e:
            logger.error(f"The last checkpoint could not be saved: {e}")
        self._thread.shutdown()
        self._code.close()

    @contextlib.contextmanager
    def _policy_on_errors(self) -> Iterator[None]:
        try:
            yield
            self.failure = None
        except (OSError, CheckpointError) as e:
            self.failure = e
            if not self._goes_on_after_errors:
                raise
            logger.error(f"A checkpoint could not be saved; training continues without it: {e}")

    def _write(self, job: SaveJob) -> str:
        self.is_writing = True
        try:
            return self._write_files(job)
        finally:
            self.is_writing = False

    def _write_files(self, job: SaveJob) -> str:
        self._snapshot.wait()
        known, facts = dict[str, FileDigest](), dict[str, Any]()
        with contextlib.ExitStack() as stack:
            if self._last is not None and self._save_frozen == ONCE:
                stack.enter_context(self._checkpoint._pinned(self._last.storage_id))
            store = self._checkpoint.store_path(job.metadata, known=known, facts=facts)
            path, storage_id = stack.enter_context(store)
            for rank, tensors in enumerate(job.ranks):
                _write_tensors(path, rank_file(rank), tensors, known)
            hashes = self._write_common(path, storage_id, job, known)
            facts["hashes"] = hashes.to_record()
        self._saved(storage_id, job, hashes)
        return storage_id

    def _saved(self, storage_id: str, job: SaveJob, hashes: TensorHashes) -> None:
        self._code.is_in(self._checkpoint.storage_base, storage_id)
        if self._last is not None and self._save_frozen == ALWAYS and not self._has_advised:
            sizes = unchanged_bytes(job.tensors, job.frozen, hashes.tensors, self._last.hashes)
            if (text := advice(*sizes)) is not None:
                self._has_advised = True
                logger.warning(text)
        self._last = Last(storage_id, hashes)
        self._on_saved(storage_id, job)

    def _write_together(self, parts: _Parts, distributed: DistributedContext) -> str:
        known, facts = dict[str, FileDigest](), dict[str, Any]()
        metadata = parts.job.metadata if parts.rank == 0 else None
        store = self._checkpoint.store_path(metadata, shard=True, known=known, facts=facts)
        with store as (path, storage_id):
            hashed = Ranks(distributed).on_all(lambda: parts.write(path, known))
            if parts.rank == 0:
                hashes = self._write_chiefs(path, storage_id, parts, known, hashed)
                facts["hashes"] = hashes.to_record()
        if parts.rank == 0:
            self._saved(storage_id, parts.job, hashes)
        return storage_id

    def _write_in_background(self, parts: _Parts, save: JointSave) -> str:
        known: dict[str, FileDigest] = {}
        hashes: list[TensorHashes] = []

        def write() -> dict[str, str]:
            self._snapshot.wait()
            return parts.write(save.path, known)

        def finish(hashed: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            found = self._write_chiefs(save.path, save.storage_id, parts, known, hashed)
            hashes.append(found)
            return parts.job.metadata, {"hashes": found.to_record()}

        self.is_writing = True
        try:
            self._checkpoint._finish_together(save, write, known, finish)
            if parts.rank == 0:
                self._saved(save.storage_id, parts.job, hashes[0])
        finally:
            self.is_writing = False
        return save.storage_id

    def _write_chiefs(
        self,
        path: pathlib.Path,
        storage_id: str,
        parts: _Parts,
        known: dict[str, FileDigest],
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
        known: dict[str, FileDigest],
        whole_models: Any = None,
        of_ranks: Mapping[str, str] | None = None,
    ) -> TensorHashes:
        """Write what is not of a single rank, and show all files to callbacks."""
        assert self._code_taken is not None, "start() comes first"
        self._code_taken.result()
        with checkpoint_errors("write files into", path):
            with concurrent.futures.ThreadPoolExecutor(2, thread_name_prefix="det-save") as helpers:
                code = helpers.submit(self._code.write_into, path)
                hashed = helpers.submit(hash_states, job.tensors, job.ranks)
                tensors, files = job.tensors, dict[str, FrozenFile]()
                if self._save_frozen == ONCE and job.frozen:
                    tensors, files = take_out(tensors, job.frozen, hashed.result(), self._last)
                for name, file in files.items():
                    self._write_frozen(path, storage_id, name, file, known)
                _write_tensors(path, STATE, tensors, known)
            known.update(code.result())
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
        known: dict[str, FileDigest],
    ) -> None:
        """Share a file with the last checkpoint, or write it where that is not possible."""
        if file.is_known and self._last is not None:
            digest = self._checkpoint._share(self._last.storage_id, name, path, storage_id)
            if digest is not None:
                known[name] = digest
                return
        _write_tensors(path, name, file.tensors, known)

    def _exported(self, job: SaveJob) -> Any:
        is_average = self._export == EXPORT
        return averaged_models(job.tensors) if is_average else job.tensors[MODELS]


def _seal(job: SaveJob, known: Mapping[str, FileDigest]) -> dict[str, Any] | None:
    """Seal the files with objects, if loading these takes trust."""
    trust = Trust()
    names = classes_in([job.tensors, job.ranks])
    return seal(job.run.run_id, known) if any(trust.find(n) is None for n in names) else None


def _write_tensors(
    path: pathlib.Path, name: str, tensors: Any, known: dict[str, FileDigest]
) -> None:
    with checkpoint_errors("write", path / name):
        (path / name).parent.mkdir(exist_ok=True)
        with HashingFile(path / name) as file:
            torch.save(tensors, file)
    known[name] = file.digest


class _CodeCopy:
    """The user's code as it was when training began; every checkpoint gets the same copy.

    In a local storage the checkpoints of a run share the files: hard links, so each is whole.
    """

    def __init__(self, source: pathlib.Path, exclude: list[pathlib.Path]) -> None:
        self._source = source
        self._exclude = exclude
        self._archive: IO[bytes] | None = None
        self._newest: pathlib.Path | None = None

    def take(self) -> None:
        # Without a name, so that a killed process leaves nothing behind.
        self._archive = tempfile.TemporaryFile()  # noqa: SIM115  # closed by close()
        archive_user_code(self._source, self._archive, self._exclude)

    def write_into(self, checkpoint: pathlib.Path) -> dict[str, FileDigest]:
        """Write the copy, durably; return the digests of its files."""
        assert self._archive is not None
        unpack_user_code(self._archive, checkpoint / CODE, self._newest)
        files = [file for file in (checkpoint / CODE).rglob("*") if file.is_file()]
        return {
            file.relative_to(checkpoint).as_posix(): digest_file(file, sync=True) for file in files
        }

    def is_in(self, storage_base: pathlib.Path | None, storage_id: str) -> None:
        """Remember a checkpoint that has the copy."""
        if storage_base is not None:
            self._newest = storage_base / storage_id / CODE

    def close(self) -> None:
        if self._archive is not None:
            self._archive.close()
