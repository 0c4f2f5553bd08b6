"""Killed at any instant, a run leaves whole checkpoints only, and continues exactly."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from torch.utils.data._utils import worker as torch_worker

from tests.support.faults import at_least, draw_seed, factor
from tests.support.victims import (
    KINDS,
    Group,
    Setup,
    Tell,
    batches_noted,
    check_diary,
    check_storage,
    crash,
    leftovers,
    preload,
    run,
)
from tests.support.workers import run_workers

pytestmark = pytest.mark.multiprocess

DEADLINE_SECONDS = 100.0
MAX_KILLS_PER_RUN = 5
KILLS = int(os.environ.get("DET_TEST_KILLS", at_least(25, 40)))
# At least this share of the random kills must hit a save.
SHARE_IN_SAVES = 0.3


def in_worker(function: Any, *arguments: Any, seconds: float = DEADLINE_SECONDS) -> Any:
    """Run in a process that has torch loaded and one thread, so that its children start at once."""
    (result,) = run_workers(1, function, *arguments, process_group=False, deadline_seconds=seconds)
    return result


class Unbroken:
    """Runs that nobody disturbed, one for each way to train, and how long their saves took."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen: dict[Setup, tuple[Any, Path, float, float]] = {}

    def of(self, setup: Setup) -> tuple[Any, Path, float, float]:
        """Return ending, folder, and the seconds of the whole run and of one save."""
        key = dataclasses.replace(setup, async_checkpoint=True, keep_latest=None)
        if key not in self._seen:
            folder = self._root / f"unbroken-{len(self._seen)}"
            began = time.monotonic()
            child = Group(run, key, folder)
            wait_for_save(child, folder)
            save_began = time.monotonic()
            while leftovers(folder):
                time.sleep(0.0005)
            save = time.monotonic() - save_began
            ending = child.result()
            self._seen[key] = ending, folder, time.monotonic() - began, save
        return self._seen[key]


def wait_for_save(child: Group, folder: Path) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not leftovers(folder) and psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "no save has begun"
        time.sleep(0.0005)


def shared_memory(pids: set[int]) -> list[str]:
    """Memory that these processes shared and nobody freed.

    Where torch cannot have as much as it wants it leaves a name without memory, which may be of
    another process that had the same number long ago.
    """
    prefixes = tuple(f"torch_{pid}_" for pid in pids)
    return [
        path.name
        for path in Path("/dev/shm").glob("torch_*")
        if path.name.startswith(prefixes) and path.stat().st_size
    ]


def children_of(pid: int) -> set[int]:
    try:
        return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except (FileNotFoundError, ProcessLookupError):
        return set()


def lost_batches(folder: Path) -> list[int]:
    """How many batches each process had to do again."""
    noted = batches_noted(folder)
    return [before + 1 - after for before, after in itertools.pairwise(noted) if after <= before]


def check_end(setup: Setup, folder: Path, ending: Any, unbroken: Unbroken, what: str) -> None:
    expected, expected_folder, _, _ = unbroken.of(setup)
    assert ending == expected, what
    check_diary(folder, expected_folder, what)
    assert leftovers(folder) == [], what
    check_storage(folder)


# Kills at random times.


def draw_setups(draw: random.Random) -> Iterator[Setup]:
    """Every kind of trial and number of workers in turn, in any order."""
    while True:
        ways = list(itertools.product(KINDS, (0, 0, 2, 4)))
        draw.shuffle(ways)
        for kind, num_workers in ways:
            yield Setup(
                kind,
                num_workers,
                async_checkpoint=draw.random() < 0.7,
                keep_latest=draw.choice([None, 2]),
            )


def _kill_at_random(root: Path, kills: int, seed: int) -> dict[str, int]:
    preload()
    draw = random.Random(seed)
    unbroken = Unbroken(root)
    setups = draw_setups(draw)
    counts = {"kills": 0, "in a save": 0, "runs": 0}
    while counts["kills"] < kills:
        counts["runs"] += 1
        setup, folder = next(setups), root / f"run-{counts['runs']}"
        what = f"seed {seed}, run {counts['runs']}, {setup}"
        _, _, run_seconds, save_seconds = unbroken.of(setup)
        pids: set[int] = set()
        for _ in range(min(MAX_KILLS_PER_RUN, kills - counts["kills"])):
            child = Group(run, setup, folder)
            if draw.random() < 0.4:
                wait_for_save(child, folder)
                time.sleep(draw.uniform(0, save_seconds))
            else:
                time.sleep(draw.uniform(0, run_seconds))
            pids |= {child.pid} | children_of(child.pid)
            if not child.kill():
                break  # it was too fast for us
            counts["kills"] += 1
            counts["in a save"] += bool(leftovers(folder))
            assert child.left_alive() == [], what
            if (folder / "storage").exists():
                check_storage(folder)
        check_end(setup, folder, Group(run, setup, folder).result(), unbroken, what)
        # While one checkpoint is being written, training goes on towards the next.
        intervals = 2 if setup.async_checkpoint else 1
        assert max(lost_batches(folder), default=0) <= intervals * setup.interval, what
        assert shared_memory(pids) == [], what
    return counts


@pytest.mark.slow
@pytest.mark.timeout(DEADLINE_SECONDS + 2 * KILLS + 60)
def test_runs_killed_up_to_five_times_end_like_unbroken_ones(tmp_path: Path) -> None:
    seed = draw_seed()
    counts = in_worker(_kill_at_random, tmp_path, KILLS, seed, seconds=DEADLINE_SECONDS + 2 * KILLS)
    print(counts)  # noqa: T201  # which the long form is run for
    assert counts["in a save"] >= SHARE_IN_SAVES * counts["kills"], f"seed {seed}: {counts}"


# Kills at named places.

# Name of the place, at which of its hits to die, whether in the background thread.
POINTS = [
    ("before_tmp", 1, True),
    ("before_tmp", 3, False),
    ("mid_write", 1, True),
    ("mid_write", 12, False),
    ("before_fsync", 2, True),
    ("before_fsync", 20, True),
    ("before_fsync", 31, False),
    ("before_manifest", 3, True),
    ("before_rename", 1, True),
    ("before_rename", 4, False),
    ("after_rename", 1, True),
    ("after_rename", 4, False),
    ("mid_gc", 1, True),
    ("mid_gc", 2, False),
]


def _temporary_elsewhere(
    setup: Setup, folder: Path, point: str = "none", hits: int = 1, *, tell: Tell
) -> Any:
    """Train with temporary files on another file system than the checkpoints."""
    tempfile.tempdir = os.environ["OTHER_FILES"]
    return crash(setup, folder, point, hits, tell)


def _crash_everywhere(root: Path, kinds: list[str], points: list[Any], elsewhere: bool) -> int:
    preload()
    unbroken = Unbroken(root)
    for kind, (point, hits, is_async) in itertools.product(kinds, points):
        setup = Setup(kind, async_checkpoint=is_async, keep_latest=2 if point == "mid_gc" else None)
        folder = root / f"{kind}-{point}-{hits}-{is_async}"
        what = folder.name
        if elsewhere:
            child = Group(_temporary_elsewhere, setup, folder, point, hits)
        else:
            child = Group(crash, setup, folder, point, hits)
        assert child.join() == -signal.SIGKILL, what
        if point != "before_fsync":  # some of those come after the rename
            assert bool(leftovers(folder)) == (point not in ("before_tmp", "after_rename")), what
        steps = check_storage(folder)
        before = len(batches_noted(folder))
        again = Group(_temporary_elsewhere if elsewhere else run, setup, folder)
        check_end(setup, folder, again.result(), unbroken, what)
        assert batches_noted(folder)[before] == max(steps, default=0), what
    return len(kinds) * len(points)


def test_a_kill_at_any_named_place_does_no_harm(tmp_path: Path) -> None:
    kinds = list(KINDS) if factor() > 1 else ["mlp"]
    cases = in_worker(_crash_everywhere, tmp_path, kinds, POINTS, False)
    assert cases == len(kinds) * len(POINTS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS[1:])
def test_so_it_is_with_other_trials(kind: str, tmp_path: Path) -> None:
    places = [POINTS[KINDS.index(kind)], POINTS[-1 - KINDS.index(kind)]]
    in_worker(_crash_everywhere, tmp_path, [kind], places, False)


@pytest.mark.slow
def test_so_it_is_with_temporary_files_on_another_file_system(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        if Path(elsewhere).stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("/dev/shm is not another file system here")
        os.environ["OTHER_FILES"] = elsewhere
        kinds = list(KINDS) if factor() > 1 else ["conv"]
        points = POINTS if factor() > 1 else POINTS[1::2]
        in_worker(_crash_everywhere, tmp_path, kinds, points, True)
        # Sockets of Python's own are left behind by killed loader workers; nothing of ours is.
        assert list(Path(elsewhere).glob("determined-*")) == []


# Kills of others than the whole group.


def _kill_parent_only(root: Path) -> list[int]:
    preload()
    # How often workers look for their parent; torch means it to be constant.
    torch_worker.MP_STATUS_CHECK_INTERVAL = 0.2  # type: ignore[attr-defined]
    setup = Setup("conv", num_workers=2)
    unbroken = Unbroken(root)
    child = Group(run, setup, root / "run")
    child.wait_until_told(DEADLINE_SECONDS)
    workers = [psutil.Process(pid) for pid in children_of(child.pid)]
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert alive == []
    assert child.left_alive() == []
    check_end(setup, root / "run", Group(run, setup, root / "run").result(), unbroken, "again")
    assert shared_memory({child.pid} | {worker.pid for worker in workers}) == []
    return [worker.pid for worker in workers]


def test_loader_workers_end_when_only_their_parent_was_killed(tmp_path: Path) -> None:
    assert len(in_worker(_kill_parent_only, tmp_path)) == 2


def _kill_worker(setup: Setup, folder: Path, tell: Tell) -> Any:
    told = itertools.count()

    def kill_at_fourth() -> None:
        if next(told) == 3:
            os.kill(min(children_of(os.getpid())), signal.SIGKILL)

    return run(setup, folder, kill_at_fourth)


def _lose_worker(root: Path) -> str:
    preload()
    setup = Setup("lstm", num_workers=2, batches=14)
    unbroken = Unbroken(root)
    child = Group(_kill_worker, setup, root / "run")
    with pytest.raises(AssertionError) as caught:
        child.result()
    assert child.left_alive() == []
    check_end(setup, root / "run", Group(run, setup, root / "run").result(), unbroken, "again")
    return str(caught.value)


def test_a_killed_loader_worker_ends_the_run_with_an_error_and_the_next_one_goes_on(
    tmp_path: Path,
) -> None:
    error = in_worker(_lose_worker, tmp_path)
    # Which one depends on whether it was just handing over a batch.
    assert "killed by signal: Killed" in error or "lost a worker process" in error
    assert "DistributedError" not in error


# In new interpreters, as users start them.


SCRIPT = '{"kind": "conv", "num_workers": 2}'


def _interpreter(folder: Path, hash_seed: str, crash_point: str = "") -> int:
    folder.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "tests.support.victims", str(folder), SCRIPT],
        cwd=Path(__file__).parents[2],
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONHASHSEED": hash_seed,
            "DET_TEST_CRASH_POINT": crash_point,
        },
        timeout=DEADLINE_SECONDS,
        capture_output=True,
    ).returncode


@pytest.mark.slow
def test_the_order_of_hashes_does_not_matter(tmp_path: Path) -> None:
    """The unbroken run has a third order: that of the server of workers."""
    ending = in_worker(run, Setup(**json.loads(SCRIPT)), tmp_path / "unbroken")
    starts = [("2", "mid_write:9"), ("3", "before_rename:2"), ("4", "")]
    for hash_seed, crash_point in starts if factor() > 1 else starts[1:]:
        status = _interpreter(tmp_path / "broken", hash_seed, crash_point)
        assert status == (-signal.SIGKILL if crash_point else 0)
    assert (tmp_path / "broken" / "ending").read_text() == repr(ending)
    check_diary(tmp_path / "broken", tmp_path / "unbroken", "hash seeds")
