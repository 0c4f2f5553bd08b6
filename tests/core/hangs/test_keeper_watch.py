"""A process of a run ends when the keeper does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from determined.platform.runs.folder import RunFolder

pytestmark = pytest.mark.multiprocess


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


def watcher(run: RunFolder, then: str, grace: float = 60) -> subprocess.Popen[bytes]:
    script = (
        "import sys, time; from determined.core.hangs.keeper_watch import end_with_keeper\n"
        f"end_with_keeper({str(run.alive)!r}, {grace}); print('watching', flush=True)\n{then}"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"watching\n"
    return process


def close(process: subprocess.Popen[bytes]) -> int:
    assert process.stdout is not None
    with process:
        return process.wait(60)


def test_a_process_is_asked_to_stop_when_the_lock_is_free(run: RunFolder) -> None:
    lock = run.try_lock()
    assert lock is not None
    process = watcher(run, "time.sleep(600)")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    os.close(lock)
    assert close(process) == -signal.SIGTERM


def test_one_that_does_not_stop_is_killed_after_the_grace(run: RunFolder) -> None:
    lock = run.try_lock()
    assert lock is not None
    ignore = "import signal; signal.signal(15, signal.SIG_IGN); print('ready', flush=True)\n"
    process = watcher(run, ignore + "time.sleep(600)", grace=0.3)
    assert process.stdout is not None
    process.stdout.readline()
    os.close(lock)
    assert close(process) == -signal.SIGKILL


def test_watching_keeps_no_process_from_its_end(run: RunFolder) -> None:
    lock = run.try_lock()
    assert lock is not None
    assert close(watcher(run, "sys.exit(3)")) == 3
    os.close(lock)


def test_the_lock_can_be_taken_after_the_watchers_had_it(run: RunFolder) -> None:
    lock = run.try_lock()
    assert lock is not None
    processes = [watcher(run, "time.sleep(600)") for _ in range(3)]
    os.close(lock)
    assert [close(process) for process in processes] == [-signal.SIGTERM] * 3
    again = run.try_lock()
    assert again is not None
    os.close(again)
