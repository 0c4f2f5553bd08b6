"""The inbox: folders that nobody sees half-made, and locks that die with their process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from determined.errors import JournalError
from determined.journal import Heartbeat, InboxItem, JournalReader, boot_id, item_names
from tests.support.waiting import eventually

_HOLDER = """
import sys, time
from pathlib import Path
from determined.journal import Heartbeat, InboxItem
item, writer = InboxItem.create(Path(sys.argv[1]))
writer.append([Heartbeat()])
print(item.path, flush=True)
time.sleep(600)
"""


def test_an_item_has_a_locked_journal_from_its_first_moment(tmp_path: Path) -> None:
    item, writer = InboxItem.create(tmp_path)
    assert item_names(tmp_path) == [item.path.name]
    assert item.boot_id == boot_id()
    assert item.is_held
    writer.append([Heartbeat()])
    assert len(list(JournalReader(item.journal).records())) == 1
    writer.close()
    assert not item.is_held


def test_items_sort_by_age_and_strangers_are_no_items(tmp_path: Path) -> None:
    made = [InboxItem.create(tmp_path) for _ in range(3)]
    for name in (".01794840091495394570-9090b1a1f6d2", "notes.txt", "x.unreadable"):
        (tmp_path / "inbox" / name).mkdir()
    assert item_names(tmp_path) == [item.path.name for item, _ in made]
    assert item_names(tmp_path / "nowhere") == []
    for _, writer in made:
        writer.close()


def test_the_lock_of_a_killed_process_is_free_at_once(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    item = InboxItem(process.stdout.readline().strip())
    assert item.is_held
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not item.is_held


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_does_not_hold_the_lock_of_its_parent(tmp_path: Path) -> None:
    item, writer = InboxItem.create(tmp_path)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)  # until the parent has seen what it wants
        os._exit(0)
    writer.close()
    eventually(lambda: not item.is_held)
    os.close(writing)
    assert os.waitpid(child, 0)[1] == 0
    os.close(reading)


def test_an_inbox_that_cannot_be_made_is_an_error_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "inbox").write_text("in the way")
    with pytest.raises(JournalError, match="inbox"):
        InboxItem.create(tmp_path)
