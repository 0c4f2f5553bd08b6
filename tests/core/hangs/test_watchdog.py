from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from determined.core._distributed import DistributedContext
from determined.core.hangs.watchdog import Watchdog, prepare_child
from determined.errors import DistributedError
from tests.support.waiting import eventually
from tests.support.workers import collect_workers, run_workers

DEADLINE_SECONDS = 30


@pytest.fixture
def watchdog(tmp_path: Path) -> Iterator[Watchdog]:
    watchdog = Watchdog(tmp_path, 0, 2, 0.2, lambda: "gather (collective 4)")
    watchdog.start()
    yield watchdog
    watchdog.stop()


def _wait_for(directory: Path, name: str, *texts: str) -> str:
    path = directory / name
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        text = path.read_text() if path.exists() else ""
        if all(part in text for part in ("=== rank", *texts)):
            return text
        time.sleep(0.01)
    raise AssertionError(f"{path} does not hold {texts} but: {text}")


def _come_and_go(directory: Path, rank: int) -> None:
    for _ in range(300):
        watchdog = Watchdog(directory, rank, 4, timeout_seconds=30)
        watchdog.start()
        watchdog.stop()


def test_ranks_that_end_together_remove_the_directory_together(tmp_path: Path) -> None:
    with ThreadPoolExecutor() as pool:
        ranks = [pool.submit(_come_and_go, tmp_path / "reports", rank) for rank in range(4)]
    for rank in ranks:
        rank.result()
    assert not (tmp_path / "reports").exists()


class TestOneRank:
    def test_silence_is_reported_with_the_stacks_of_all_threads(
        self, watchdog: Watchdog, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        release = threading.Event()

        def stuck_in_user_code() -> None:
            release.wait(DEADLINE_SECONDS)

        thread = threading.Thread(target=stuck_in_user_code)
        thread.start()
        with caplog.at_level(logging.ERROR, "determined.core"):
            watchdog.beat("train_batch 17")
            text = _wait_for(tmp_path, "hang_1.txt")
        release.set()
        thread.join()
        assert "stuck_in_user_code" in text
        assert "last beat 'train_batch 17'" in text
        assert "last collective gather (collective 4)" in text
        assert "rank 1: has written no status" in text
        assert str(tmp_path / "hang_1.txt") in caplog.text
        assert "The others are waiting for it: rank 0 is busy in" in caplog.text
        assert "rank 1 has written no status" in caplog.text

    def test_one_silence_is_reported_once_and_the_next_again(
        self, watchdog: Watchdog, tmp_path: Path
    ) -> None:
        _wait_for(tmp_path, "hang_1.txt")
        time.sleep(0.5)
        assert not (tmp_path / "hang_2.txt").exists()
        watchdog.beat("going on")
        assert "'going on'" in _wait_for(tmp_path, "hang_2.txt")

    def test_beats_keep_it_quiet(self, tmp_path: Path) -> None:
        watchdog = Watchdog(tmp_path, 0, 1, timeout_seconds=30)
        watchdog.start()
        for batch_idx in range(1000):
            watchdog.beat(f"train_batch {batch_idx}")
        watchdog.stop()
        assert list(tmp_path.iterdir()) == []

    def test_a_directory_that_was_not_needed_goes_again(self, tmp_path: Path) -> None:
        directory = tmp_path / "reports" / "run"
        watchdog = Watchdog(directory, 0, 1, timeout_seconds=2)
        watchdog.start()
        eventually((directory / "rank_0.json").exists)
        watchdog.beat("going on")
        watchdog.stop()
        assert not (tmp_path / "reports").exists()

    def test_zero_turns_it_off(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DET_HANG_TIMEOUT", "0")
        watchdog = Watchdog(tmp_path / "absent", 0, 1)
        watchdog.start()
        watchdog.beat("still allowed")
        watchdog.stop()
        assert not (tmp_path / "absent").exists()

    @pytest.mark.parametrize("text", ["-1", "soon"])
    def test_a_wrong_timeout_is_refused(self, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DET_HANG_TIMEOUT", text)
        with pytest.raises(ValueError, match="DET_HANG_TIMEOUT"):
            Watchdog("anywhere", 0, 1)

    def test_reports_of_an_earlier_run_are_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "hang_1.txt").write_text("old")
        watchdog = Watchdog(tmp_path, 0, 1, 0.1)
        watchdog.start()
        _wait_for(tmp_path, "hang_2.txt")
        watchdog.stop()
        assert (tmp_path / "hang_1.txt").read_text() == "old"

    def test_a_directory_that_vanishes_stops_nothing(
        self, watchdog: Watchdog, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        tmp_path.rename(tmp_path.with_name("gone"))
        deadline = time.monotonic() + DEADLINE_SECONDS
        while "cannot write" not in caplog.text and time.monotonic() < deadline:
            time.sleep(0.01)
        tmp_path.with_name("gone").rename(tmp_path)
        _wait_for(tmp_path, "hang_1.txt")


def _loop_forever_on_rank_1(directory: Path) -> str:
    with DistributedContext.from_torch_distributed() as context:
        watchdog = Watchdog(directory, context.rank, 2, 1.0, lambda: context.last_collective)
        context.allgather("ready")
        watchdog.start()
        watchdog.beat(f"batch of rank {context.rank}")
        if context.rank == 1:
            _lost_in_train_batch(directory)
        context.gather(None)
        watchdog.stop()
        return _wait_for(directory, "hang_1.txt", "=== rank 0", "=== rank 1")


def _lost_in_train_batch(directory: Path) -> None:
    _wait_for(directory, "hang_1.txt", "=== rank 0", "=== rank 1")


def _stop_rank_1(directory: Path) -> str:
    context = DistributedContext.from_torch_distributed()
    watchdog = Watchdog(directory, context.rank, 2, 0.5, lambda: context.last_collective)
    watchdog.start()
    pids = context.allgather(os.getpid())
    if context.rank == 1:
        eventually((directory / "rank_1.json").exists)
        os.kill(os.getpid(), signal.SIGSTOP)
    try:
        context.gather(None)
    except DistributedError as error:
        text = _wait_for(directory, "hang_1.txt", "=== rank 0")
        return f"{text}\n{error}"
    finally:
        os.kill(pids[1], signal.SIGKILL)
    return "no error"


def _loader_worker_hangs(directory: Path) -> str:
    child = os.fork()
    if child == 0:
        prepare_child(directory, 0)
        _lost_in_getitem()
    unprepared = os.fork()
    if unprepared == 0:
        _lost_in_getitem()
    eventually((directory / f"stack_0_{child}.txt").exists)
    watchdog = Watchdog(directory, 0, 1, 0.2)
    watchdog.start()
    text = _wait_for(directory, "hang_1.txt")
    watchdog.stop()
    for pid in (child, unprepared):
        assert os.waitpid(pid, os.WNOHANG) == (0, 0), "a report must not end a loader worker"
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert not list(directory.glob("stack_*"))
    return text


def _lost_in_getitem() -> None:
    time.sleep(DEADLINE_SECONDS)
    os._exit(1)


@pytest.mark.multiprocess
class TestProcesses:
    def test_every_rank_adds_its_stacks_to_one_report(self, tmp_path: Path) -> None:
        for text in run_workers(2, _loop_forever_on_rank_1, tmp_path, process_group=False):
            assert "_lost_in_train_batch" in text
            assert "last beat 'batch of rank 0'" in text
            assert "last beat 'batch of rank 1'" in text
            assert "last collective gather (collective 3)" in text  # where rank 0 waits
            assert "last collective allgather (collective 2)" in text  # where rank 1 was
            # A rank that waits for a message of ours is not the one that the others wait for.
            assert "rank 0 waits for other ranks in _wait_for" in text
            assert ", called from _loop_forever_on_rank_1" in text
            assert "rank 1 is busy in _wait_for (" in text
        assert not (tmp_path / "hang_2.txt").exists()

    def test_a_rank_is_known_from_its_start(self, tmp_path: Path) -> None:
        directory = tmp_path / "reports" / "run"
        watchdogs = [Watchdog(directory, rank, 2, timeout_seconds=600) for rank in range(2)]
        for watchdog in watchdogs:
            watchdog.start()
        assert {path.name for path in directory.iterdir()} == {"rank_0.json", "rank_1.json"}
        for watchdog in watchdogs:
            watchdog.stop()
        assert not (tmp_path / "reports").exists()

    def test_what_killed_ranks_left_is_removed(self, tmp_path: Path) -> None:
        with subprocess.Popen([sys.executable, "-c", ""]) as ended:
            pass
        for run, pid in (("killed", ended.pid), ("living", os.getpid()), ("now", ended.pid)):
            (tmp_path / run).mkdir()
            status = {"host": socket.gethostname(), "pid": pid}
            (tmp_path / run / "rank_1.json").write_text(json.dumps(status))
        watchdog = Watchdog(tmp_path / "now", 0, 2, timeout_seconds=600)
        watchdog.start()
        watchdog.stop()
        assert [path.name for path in tmp_path.iterdir()] == ["living"]

    def test_a_stopped_rank_is_described_by_the_other(self, tmp_path: Path) -> None:
        outcomes = collect_workers(
            2,
            _stop_rank_1,
            tmp_path,
            process_group=False,
            environment={"DET_COLLECTIVE_TIMEOUT": "4"},
        )
        text = outcomes[0].value
        assert "is stopped" in text
        assert "timed out" in text
        assert "rank 1 sent nothing" in text

    def test_loader_workers_are_shown(self, tmp_path: Path) -> None:
        (text,) = run_workers(1, _loader_worker_hangs, tmp_path, process_group=False)
        assert text.count("_lost_in_getitem") == 1
        assert text.count("cannot show its stacks") == 1
