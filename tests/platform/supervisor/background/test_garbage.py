"""Collections and deletions step by step, without processes: races, and runs of nobody's."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from determined import journal
from determined.platform.homes.home import Home
from determined.platform.service import RefusedError, Service
from determined.platform.supervisor.background.deletions import FileDeletion
from determined.platform.supervisor.background.garbage import GarbageCollection
from determined.platform.supervisor.decisions import Decisions
from determined.platform.supervisor.live_state import LiveState
from determined.storage import SharedFSStorageManager
from determined.store import NewExperiment, NewTrial, Reader, Writer


class _Records:
    """A home with an experiment that is over and two checkpoints."""

    def __init__(self, folder: Path, *, unmanaged: bool) -> None:
        self.home = Home(folder / "home")
        self.writer = Writer(self.home.path)
        place = str(self.home.checkpoints)
        storage: dict[str, object] = {"type": "shared_fs", "host_path": place}
        storage |= dict.fromkeys(["save_experiment_best", "save_trial_best"], 0)
        config = {} if unmanaged else {"checkpoint_storage": storage | {"save_trial_latest": 0}}
        self.run_folder = self.home.path / "inbox" / "one"
        self.run_folder.mkdir(parents=True)
        with self.writer.transaction() as tx:
            tx.create_experiment(NewExperiment(config, "me", "x", unmanaged=unmanaged))
            tx.create_trial(NewTrial(1, "request", 1, {}))
            run = tx.create_run(1, folder=str(self.run_folder), slots=[], steps_completed=0)
            saved = [journal.Checkpoint(uuid, 1, {"w": 1}, {}) for uuid in ("a", "b")]
            tx.read_journal("j", 1, run.run_id, saved, 1)
            tx.update_trial(1, state="COMPLETED")
            tx.update_experiment(1, state="COMPLETED", gc_is_due=not unmanaged)
        for uuid in ("a", "b"):
            with SharedFSStorageManager(self.home.checkpoints).store_path(uuid) as path:
                (path / "w").write_text("1")

    async def _work(self, part: GarbageCollection | FileDeletion) -> None:
        """One round of the loop: look, act, wait."""
        with self.writer.transaction() as tx:
            part.load(tx)
        part.act()
        if part._task is not None:
            await asyncio.wait([part._task])

    async def find_garbage(self) -> GarbageCollection:
        part = GarbageCollection(LiveState(self.home), asyncio.Event())
        await self._work(part)
        return part

    async def delete_files(self) -> None:
        part = FileDeletion(self.home, asyncio.Event())
        await self._work(part)
        while part.has_results:
            with self.writer.transaction() as tx:
                part.record(Decisions(LiveState(self.home), tx, 0.0))
            await self._work(part)


def test_what_is_registered_after_it_was_found_stays(tmp_path: Path) -> None:
    records = _Records(tmp_path, unmanaged=False)
    collection = asyncio.run(records.find_garbage())
    assert [result.garbage for result in collection._results] == [["a", "b"]]
    with records.writer.transaction() as tx:
        model = tx.registry.create_model("m", "me")
        tx.registry.register_version(model.id, "a")
    with records.writer.transaction() as tx:
        collection.record(Decisions(LiveState(records.home), tx, 0.0))
    asyncio.run(records.delete_files())
    records.writer.close()
    reader = Reader(records.home.path)
    try:
        found = {c.uuid: c.state for u in ("a", "b") if (c := reader.checkpoint(u)) is not None}
        assert found == {"a": "COMPLETED", "b": "DELETED"}
        assert not reader.has_chores()
    finally:
        reader.close()
    assert (records.home.checkpoints / "a").exists()
    assert not (records.home.checkpoints / "b").exists()


def test_garbage_of_an_experiment_that_went_meanwhile_is_forgotten(tmp_path: Path) -> None:
    records = _Records(tmp_path, unmanaged=False)
    collection = asyncio.run(records.find_garbage())
    with records.writer.transaction() as tx:
        tx.delete_experiment(1)
        collection.record(Decisions(LiveState(records.home), tx, 0.0))
        assert not collection.has_results
    records.writer.close()


def test_a_run_of_nobodys_loses_its_records_but_not_its_files(tmp_path: Path) -> None:
    records = _Records(tmp_path, unmanaged=True)
    service = Service(records.home)
    try:
        with pytest.raises(RefusedError, match="its run decides which checkpoints it keeps"):
            service.garbage(1)
    finally:
        service.close()
    with records.writer.transaction() as tx:
        for uuid in ("a", "b"):
            tx.deletions.begin(uuid)
        tx.update_experiment(1, state="DELETING")
    asyncio.run(records.delete_files())
    with records.writer.transaction() as tx:
        assert tx.with_state("DELETING") == []
        assert tx.checkpoint("a") is None
    records.writer.close()
    assert not records.run_folder.exists()
    assert (records.home.checkpoints / "a" / "w").exists()  # where it saved, nobody told us
