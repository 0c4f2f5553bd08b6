"""One checkpoint that all ranks write in the background, while their main threads train.

The main threads only agree on its name. Each rank's own thread writes its files and sends the
chief a message, which says what it wrote or why it could not; when the chief has all of them, it
publishes the checkpoint and answers. Messages are no collectives: whatever main threads do
meanwhile, in whichever order, no rank waits for another's main thread.
"""

from __future__ import annotations

import contextlib
import pickle
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from determined.core._checkpoint_shards import SavedCheckpoint
from determined.core._distributed import DistributedContext
from determined.core.ranks.agreement import Outcome, Ranks
from determined.errors import DistributedError
from determined.storage import Contents, FileDigest, StorageManager


@dataclass(frozen=True)
class JointSave:
    """A checkpoint that is being written: its number among the saves, and this rank's folder."""

    number: int
    storage_id: str
    stage: str
    path: Path


@dataclass(frozen=True)
class Written:
    """What all ranks wrote, in the order of ranks; `contents` where they sent it to the storage."""

    results: list[Any]
    digests: dict[str, FileDigest]
    contents: Contents


class JointSaves:
    """This rank's part in the saves of all ranks."""

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
        self._number = 0
        self._lock = threading.Lock()
        self._received: dict[int, dict[int, Outcome]] = {}  # by number of the save, and by rank
        if distributed._group is not None:
            distributed._group.handle_messages(self._receive)

    def begin(self) -> JointSave:
        """Agree on a name, and make the folder. All ranks call it, in step."""
        storage, self._number = self._storage, self._number + 1

        def begin() -> tuple[str, str]:
            storage_id = str(uuid.uuid4())
            return storage_id, storage.begin(storage_id)

        storage_id, stage = self._ranks.on_first(begin)
        if storage.store_path_is_direct_access():
            assert storage.base_path is not None  # direct access means a file system
            return JointSave(self._number, storage_id, stage, storage.base_path / stage)
        folder: list[Path] = []
        try:
            self._ranks.on_all(lambda: folder.append(storage.pre_store_path(storage_id)))
        except BaseException:
            for path in folder:
                storage.discard(path)
            raise
        return JointSave(self._number, storage_id, stage, folder[0])

    @contextlib.contextmanager
    def writing(
        self, save: JointSave, write: Callable[[], Any], known: Mapping[str, FileDigest]
    ) -> Iterator[Written | None]:
        """Write this rank's files; yield what all have written, on the chief.

        When the block of the chief ends, the others learn whether it did without an error.
        """
        try:
            if self._distributed.rank == 0:
                with self._answering(save):
                    yield self._collect(save, write, known)
                return
            try:
                outcome = Outcome((write(), *self._send_files(save, known)))
            except BaseException as error:
                self._post(save, Outcome.of_error(self._distributed.rank, error))
                raise
            self._post(save, outcome)
            self._wait(save, [0])[0].raise_if_failed()
            yield None
        finally:
            with self._lock:
                self._received.pop(save.number, None)
            if not self._storage.store_path_is_direct_access():
                self._storage.discard(save.path)

    def commit(
        self,
        save: JointSave,
        written: Written,
        metadata: dict[str, Any],
        known: Mapping[str, FileDigest],
    ) -> SavedCheckpoint:
        """Publish the checkpoint; the chief has written the rest of it."""
        digests = {**written.digests, **known}
        contents = written.contents.merged_with(
            self._storage.put(save.path, save.stage, None, digests)
        )
        self._before_commit(save.storage_id, metadata)
        manifest = self._storage.commit(save.stage, save.storage_id, contents, metadata)
        return SavedCheckpoint(save.storage_id, manifest.contents, metadata)

    def _send_files(
        self, save: JointSave, known: Mapping[str, FileDigest]
    ) -> tuple[dict[str, FileDigest], Contents]:
        """Send what this rank wrote to a storage in which the chief does not find it."""
        if self._storage.store_path_is_direct_access():
            return dict(known), Contents()
        return {}, self._storage.put(save.path, save.stage, None, known)

    def _collect(
        self, save: JointSave, write: Callable[[], Any], known: Mapping[str, FileDigest]
    ) -> Written:
        """Write the chief's part, and wait for the others, also if it cannot be written."""
        try:
            results = [write()]
        finally:
            outcomes = self._wait(save, list(range(1, self._distributed.size)))
        digests, contents = dict(known), Contents()
        for outcome in outcomes:
            outcome.raise_if_failed()
            result, theirs, sent = outcome.value
            results.append(result)
            digests.update(theirs)
            contents = contents.merged_with(sent)
        return Written(results, digests, contents)

    @contextlib.contextmanager
    def _answering(self, save: JointSave) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._storage.abort(save.stage)
            self._post(save, Outcome.of_error(0, error))
            raise
        self._post(save, Outcome())

    def _post(self, save: JointSave, outcome: Outcome) -> None:
        """Send an outcome to the chief, or the chief's to all others."""
        group, rank = self._distributed._group, self._distributed.rank
        message = pickle.dumps((save.number, outcome))
        for other in [0] if rank else range(1, self._distributed.size):
            assert group is not None  # there are others
            group.send_message(other, message)

    def _receive(self, rank: int, message: bytes | bytearray) -> None:
        """Keep a message, in the thread that listens to the rank."""
        number, outcome = pickle.loads(message)
        with self._lock:
            self._received.setdefault(number, {})[rank] = outcome
        assert self._distributed._group is not None
        self._distributed._group.wake()

    def _wait(self, save: JointSave, ranks: list[int]) -> list[Outcome]:
        def found() -> dict[int, Outcome]:
            with self._lock:
                return dict(self._received.get(save.number, {}))

        group = self._distributed._group
        if group is not None:
            group.wait_for_messages(lambda: found().keys() >= set(ranks))
        elif ranks:
            raise DistributedError("There are no other ranks to wait for.")
        return [found()[rank] for rank in ranks]
