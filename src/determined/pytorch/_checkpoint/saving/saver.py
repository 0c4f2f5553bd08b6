"""Writes checkpoints: a copy of the state first, the files in the background."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import logging
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from determined._contracts.tensor_hashes import TensorHashes
from determined.core import CheckpointContext, DistributedContext
from determined.core.ranks.agreement import Ranks
from determined.core.ranks.joint_saves import JointSave
from determined.errors import CheckpointError
from determined.pytorch._callback import Hooks, PyTorchCallback
from determined.pytorch._checkpoint.files.encoding import to_plain
from determined.pytorch._checkpoint.saving.code_copy import CodeCopy
from determined.pytorch._checkpoint.saving.frozen import ALWAYS, Last
from determined.pytorch._checkpoint.saving.job import SaveJob
from determined.pytorch._checkpoint.saving.writing import CheckpointWriter, Parts
from determined.pytorch._checkpoint.state.snapshot import Snapshot
from determined.pytorch._instrumentation.observer import UNOBSERVED, Observer

logger = logging.getLogger("determined.pytorch")

# A callback that overrides one of these must see the files before training continues.
_HOOKS_ON_FILES = ("on_checkpoint_end", "on_checkpoint_write_end", "on_checkpoint_upload_end")


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
        self._code = CodeCopy(code, outside_code)
        self._writer = CheckpointWriter(
            checkpoint,
            callbacks,
            self._code,
            export=export,
            save_frozen=save_frozen,
            on_saved=on_saved,
        )
        self.is_synchronous = not background or any(map(hooks.of, _HOOKS_ON_FILES))
        self._goes_on_after_errors = goes_on_after_errors
        self._observer = observer
        self._snapshot = Snapshot()
        self.can_copy = True
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

    def show_files_to(self, callbacks: Mapping[str, PyTorchCallback]) -> None:
        """Call these when the files of a checkpoint are written, in place of those given before."""
        self._writer.callbacks = callbacks

    def continue_from(self, storage_id: str, hashes: TensorHashes) -> None:
        """Share frozen weights with a checkpoint of the same storage: this run started from it."""
        self._writer.continue_from(Last(storage_id, hashes))

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
        ranks, parts = Ranks(distributed), self._writer.parts(job, distributed)
        copied: Any = None
        if not any(ranks.on_all(lambda: self.is_synchronous)):
            copied = self._try_to_copy((parts.tensors, parts.own, parts.shards))
        if not all(ranks.on_all(lambda: copied is not None)):
            with self._policy_on_errors(), self._writing():
                return self._writer.write_together(parts, distributed)
            return None
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
        with self._writing():
            self._snapshot.wait()
            return self._writer.write(job)

    def _write_in_background(self, parts: Parts, save: JointSave) -> str:
        with self._writing():
            return self._writer.write_jointly(parts, save, self._snapshot.wait)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        self.is_writing = True
        try:
            if self._code_taken is not None:  # only the chief has started
                self._code_taken.result()
            yield
        finally:
            self.is_writing = False
