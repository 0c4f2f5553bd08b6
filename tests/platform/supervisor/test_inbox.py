"""The inbox as the supervisor works through it, step by step, with the steps that crashes cut."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from determined import journal
from determined.journal import InboxItem, Introduction, JournalWriter, item_names
from determined.platform.homes.home import Home
from determined.platform.homes.unread import Unread
from determined.platform.supervisor.background.unmanaged import Unmanaged
from determined.platform.supervisor.fault_isolation import BadItem, BlamedError
from determined.store import Reader, TrialFilter, Writer


class Desk:
    """A home, its store and its inbox, without a supervisor: the test takes each step."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder / "home")
        self.writer = Writer(self.home.path)
        self.unmanaged = Unmanaged(self.home)

    def script(self, boot_id: str | None = None) -> tuple[InboxItem, JournalWriter]:
        item, writer = InboxItem.create(self.home.path)
        storage = {"type": "shared_fs", "host_path": "/data"}
        introduction = Introduction(
            name="train.py",
            command=["python", "train.py"],
            folder="/",
            owner="me",
            host="here",
            boot_id=item.boot_id if boot_id is None else boot_id,
            pid=1,
            storage=storage,
        )
        writer.append([introduction, journal.Metrics("training", 1, {"loss": 1.0})])
        item.log.write_text("a line\n")
        return item, writer

    def record(self) -> bool:
        """Look and commit; whether there was anything."""
        if not self.unmanaged.look():
            return False
        with self.writer.transaction() as transaction:
            self.unmanaged.record(transaction)
        return True

    def tick(self) -> bool:
        is_new = self.record()
        self.unmanaged.act()
        return is_new

    def restart(self) -> None:
        """A new supervisor."""
        self.unmanaged = Unmanaged(self.home)
        with self.writer.transaction() as transaction:
            self.unmanaged.sweep(transaction)

    def states(self) -> list[str]:
        reader = Reader(self.home.path)
        try:
            return [e.state for e in reader.experiments().rows]
        finally:
            reader.close()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.writer.close()


@pytest.mark.skipif(sys.platform != "linux", reason="no inotify")
def test_a_new_item_wakes_an_idle_supervisor_that_polls_rarely(desk: Desk) -> None:
    async def wait() -> None:
        changed = asyncio.Event()
        desk.unmanaged.watch(changed)
        alone = desk.unmanaged.poll_seconds(is_idle=True)
        assert desk.unmanaged.poll_seconds(is_idle=False) < alone
        _, writer = desk.script()
        await asyncio.wait_for(changed.wait(), 30)
        desk.tick()
        assert desk.unmanaged.poll_seconds(is_idle=True) < alone  # it may write any moment
        writer.close()
        desk.tick()
        desk.tick()
        assert desk.unmanaged.poll_seconds(is_idle=True) == alone
        desk.unmanaged.close()

    asyncio.run(wait())


def test_what_did_not_change_is_not_read_again(desk: Desk) -> None:
    _, writer = desk.script()
    assert desk.tick()
    assert not desk.tick()
    writer.append([journal.Heartbeat()])
    assert desk.tick()
    writer.close()
    assert desk.tick()
    assert not desk.tick()
    assert desk.states() == ["ERROR"]


def test_a_crash_between_commit_and_act_leaves_nothing_behind(desk: Desk) -> None:
    item, writer = desk.script()
    writer.append([journal.Ended("COMPLETED", "finished")])
    writer.close()
    desk.record()
    desk.restart()
    assert item.path.exists()
    desk.tick()
    assert item_names(desk.home.path) == []
    assert desk.states() == ["COMPLETED"]
    assert (desk.home.run(1, 1, 1) / "log").read_text() == "a line\n"


def test_a_crash_while_an_item_is_put_away_is_made_good(desk: Desk) -> None:
    item, writer = desk.script()
    writer.append([journal.Ended("COMPLETED", "finished")])
    writer.close()
    desk.record()
    item.journal.unlink()
    desk.restart()
    desk.tick()
    assert (desk.home.run(1, 1, 1) / "log").exists()
    assert item_names(desk.home.path) == []


def test_the_item_of_a_deleted_experiment_does_not_come_back(desk: Desk) -> None:
    item, writer = desk.script(boot_id="of another machine")
    desk.tick()
    with desk.writer.transaction() as transaction:
        transaction.delete_experiment(1)
    desk.restart()
    desk.tick()
    assert (desk.states(), item.path.exists()) == ([], True)  # its process still writes
    writer.close()
    desk.tick()
    assert (desk.states(), item.path.exists()) == ([], False)


def test_a_folder_that_somebody_deleted_ends_its_run(desk: Desk) -> None:
    item, writer = desk.script()
    desk.tick()
    writer.close()
    shutil.rmtree(item.path)
    desk.restart()
    assert desk.states() == ["ERROR"]
    reader = Reader(desk.home.path)
    (trial,) = reader.trials(TrialFilter()).rows
    assert "deleted" in trial.reason
    reader.close()


def test_beginnings_without_a_word_are_swept_away(desk: Desk) -> None:
    item, writer = InboxItem.create(desk.home.path)
    draft = desk.home.inbox / ".unfinished"
    draft.mkdir()
    long_ago = time.time() - 86400
    os.utime(draft, (long_ago, long_ago))
    desk.restart()
    desk.tick()
    assert item.path.exists()  # its process lives
    writer.close()
    os.utime(item.journal, (long_ago, long_ago))
    desk.tick()
    assert list(desk.home.inbox.iterdir()) == []
    assert desk.states() == []


def test_a_journal_that_is_none_is_left_aside(desk: Desk) -> None:
    item, writer = InboxItem.create(desk.home.path)
    writer.close()
    item.journal.write_text("somebody else wrote this")
    long_ago = time.time() - 86400
    os.utime(item.journal, (long_ago, long_ago))
    with pytest.raises(BlamedError, match="is corrupt at its beginning") as raised:
        desk.tick()
    assert raised.value.culprit == BadItem(item.path.name)


def test_a_corrupt_end_is_told(desk: Desk) -> None:
    item, writer = desk.script()
    writer.close()
    with item.journal.open("a") as file:
        file.write("somebody else wrote this")
    desk.tick()
    assert desk.states() == ["ERROR"]
    reader = Reader(desk.home.path)
    (event,) = (e for e in reader.events(experiment_id=1) if e.kind == "damaged_journal")
    assert f"{item.journal} is corrupt at byte" in event.text
    reader.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_an_item_of_another_user_holds_up_nobody(desk: Desk) -> None:
    item, writer = desk.script()
    item.journal.chmod(0)
    desk.script()
    assert desk.tick()
    assert desk.states() == ["ACTIVE"]
    writer.close()


def test_silence_of_a_week_is_the_end(desk: Desk) -> None:
    item, writer = desk.script(boot_id="of another machine")
    writer.close()
    desk.tick()
    assert desk.states() == ["ACTIVE"]
    for days, is_there in ((1, True), (8, False)):
        past = time.time() - days * 86400
        os.utime(item.journal, (past, past))
        desk.restart()
        desk.tick()
        assert (desk.states(), item.path.exists()) == (["ERROR"], is_there)


def test_a_client_knows_what_is_not_read_yet(desk: Desk) -> None:
    item, writer = desk.script()
    unread = Unread(desk.home)
    assert unread.is_any(lambda path: None)
    assert not unread.has_left
    size = item.size
    writer.append([journal.Heartbeat()])  # after the client looked
    assert not unread.is_any(lambda path: size)
    writer.close()
    assert Unread(desk.home).has_left
    late = Unread(desk.home)
    shutil.rmtree(item.path)
    assert not late.is_any(lambda path: None)
