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
from determined.platform.homes.inbox_backlog import InboxBacklog
from determined.platform.supervisor.fault_isolation import FaultError, FaultyItem
from determined.platform.supervisor.unmanaged.inbox import Inbox
from determined.store import Reader, TrialFilter, Writer


class ManualLoop:
    """A home, its store and its inbox, without a supervisor: the test takes each step."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder / "home")
        self.writer = Writer(self.home.path)
        self.inbox = Inbox(self.home)

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
        if not self.inbox.find_changes():
            return False
        with self.writer.transaction() as transaction:
            self.inbox.record(transaction)
        return True

    def tick(self) -> bool:
        is_new = self.record()
        self.inbox.act()
        return is_new

    def restart(self) -> None:
        """A new supervisor."""
        self.inbox = Inbox(self.home)
        with self.writer.transaction() as transaction:
            self.inbox.sweep(transaction)

    def states(self) -> list[str]:
        reader = Reader(self.home.path)
        try:
            return [e.state for e in reader.experiments().rows]
        finally:
            reader.close()


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[ManualLoop]:
    made = ManualLoop(tmp_path)
    yield made
    made.writer.close()


@pytest.mark.skipif(sys.platform != "linux", reason="no inotify")
def test_a_new_item_wakes_an_idle_supervisor_that_polls_rarely(loop: ManualLoop) -> None:
    async def wait() -> None:
        changed = asyncio.Event()
        loop.inbox.watch(changed)
        alone = loop.inbox.poll_seconds(is_idle=True)
        assert loop.inbox.poll_seconds(is_idle=False) < alone
        _, writer = loop.script()
        await asyncio.wait_for(changed.wait(), 30)
        loop.tick()
        assert loop.inbox.poll_seconds(is_idle=True) < alone  # it may write any moment
        writer.close()
        loop.tick()
        loop.tick()
        assert loop.inbox.poll_seconds(is_idle=True) == alone
        loop.inbox.close()

    asyncio.run(wait())


def test_what_did_not_change_is_not_read_again(loop: ManualLoop) -> None:
    _, writer = loop.script()
    assert loop.tick()
    assert not loop.tick()
    writer.append([journal.Heartbeat()])
    assert loop.tick()
    writer.close()
    assert loop.tick()
    assert not loop.tick()
    assert loop.states() == ["ERROR"]


def test_a_crash_between_commit_and_act_leaves_nothing_behind(loop: ManualLoop) -> None:
    item, writer = loop.script()
    writer.append([journal.Ended("COMPLETED", "finished")])
    writer.close()
    loop.record()
    loop.restart()
    assert item.path.exists()
    loop.tick()
    assert item_names(loop.home.path) == []
    assert loop.states() == ["COMPLETED"]
    assert (loop.home.run(1, 1, 1) / "log").read_text() == "a line\n"


def test_a_crash_while_an_item_is_put_away_is_made_good(loop: ManualLoop) -> None:
    item, writer = loop.script()
    writer.append([journal.Ended("COMPLETED", "finished")])
    writer.close()
    loop.record()
    item.journal.unlink()
    loop.restart()
    loop.tick()
    assert (loop.home.run(1, 1, 1) / "log").exists()
    assert item_names(loop.home.path) == []


def test_the_item_of_a_deleted_experiment_does_not_come_back(loop: ManualLoop) -> None:
    item, writer = loop.script(boot_id="of another machine")
    loop.tick()
    with loop.writer.transaction() as transaction:
        transaction.delete_experiment(1)
    loop.restart()
    loop.tick()
    assert (loop.states(), item.path.exists()) == ([], True)  # its process still writes
    writer.close()
    loop.tick()
    assert (loop.states(), item.path.exists()) == ([], False)


def test_a_folder_that_somebody_deleted_ends_its_run(loop: ManualLoop) -> None:
    item, writer = loop.script()
    loop.tick()
    writer.close()
    shutil.rmtree(item.path)
    loop.restart()
    assert loop.states() == ["ERROR"]
    reader = Reader(loop.home.path)
    (trial,) = reader.trials(TrialFilter()).rows
    assert "deleted" in trial.reason
    reader.close()


def test_beginnings_without_a_word_are_swept_away(loop: ManualLoop) -> None:
    item, writer = InboxItem.create(loop.home.path)
    draft = loop.home.inbox / ".unfinished"
    draft.mkdir()
    long_ago = time.time() - 86400
    os.utime(draft, (long_ago, long_ago))
    loop.restart()
    loop.tick()
    assert item.path.exists()  # its process lives
    writer.close()
    os.utime(item.journal, (long_ago, long_ago))
    loop.tick()
    assert list(loop.home.inbox.iterdir()) == []
    assert loop.states() == []


def test_a_journal_that_is_none_is_left_aside(loop: ManualLoop) -> None:
    item, writer = InboxItem.create(loop.home.path)
    writer.close()
    item.journal.write_text("somebody else wrote this")
    long_ago = time.time() - 86400
    os.utime(item.journal, (long_ago, long_ago))
    with pytest.raises(FaultError, match="is corrupt at its beginning") as raised:
        loop.tick()
    assert raised.value.source == FaultyItem(item.path.name)


def test_a_corrupt_end_is_told(loop: ManualLoop) -> None:
    item, writer = loop.script()
    writer.close()
    with item.journal.open("a") as file:
        file.write("somebody else wrote this")
    loop.tick()
    assert loop.states() == ["ERROR"]
    reader = Reader(loop.home.path)
    (event,) = (e for e in reader.events(experiment_id=1) if e.kind == "damaged_journal")
    assert f"{item.journal} is corrupt at byte" in event.text
    reader.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_an_item_of_another_user_holds_up_nobody(loop: ManualLoop) -> None:
    item, writer = loop.script()
    item.journal.chmod(0)
    loop.script()
    assert loop.tick()
    assert loop.states() == ["ACTIVE"]
    writer.close()


def test_silence_of_a_week_is_the_end(loop: ManualLoop) -> None:
    item, writer = loop.script(boot_id="of another machine")
    writer.close()
    loop.tick()
    assert loop.states() == ["ACTIVE"]
    for days, is_there in ((1, True), (8, False)):
        past = time.time() - days * 86400
        os.utime(item.journal, (past, past))
        loop.restart()
        loop.tick()
        assert (loop.states(), item.path.exists()) == (["ERROR"], is_there)


def test_a_client_knows_what_is_not_read_yet(loop: ManualLoop) -> None:
    item, writer = loop.script()
    unread = InboxBacklog(loop.home)
    assert unread.is_unread(lambda path: None)
    assert not unread.has_ended
    size = item.size
    writer.append([journal.Heartbeat()])  # after the client looked
    assert not unread.is_unread(lambda path: size)
    writer.close()
    assert InboxBacklog(loop.home).has_ended
    late = InboxBacklog(loop.home)
    shutil.rmtree(item.path)
    assert not late.is_unread(lambda path: None)
