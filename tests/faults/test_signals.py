"""Signals in every phase of a run: it stops soon, saves where it is, and continues exactly."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from determined.storage import SharedFSStorageManager
from tests.support import resumable, signalled
from tests.support.faults import in_memory  # noqa: F401  # a fixture
from tests.support.signalled import Ending
from tests.support.waiting import eventually
from tests.support.workers import Outcome, collect_workers

pytestmark = pytest.mark.multiprocess

ROOT = Path(__file__).parents[2]
DEADLINE_SECONDS = 60.0
# The phase, and the batches that are trained when the run has stopped; -1: it is not certain.
PHASES = {
    "loader start": 0,
    "first step": 1,
    "batch 4": 5,
    "validation": 4,
    "last batch": 8,
    "save": -1,
}


@contextlib.contextmanager
def when_ready(folder: Path, act: Callable[[int], None]) -> Iterator[None]:
    """Call `act` with the id of the process that reaches its phase while the block runs."""

    def wait() -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not (folder / "ready").exists():
            if time.monotonic() > deadline or is_over.wait(0.005):
                return
        act(int((folder / "ready").read_text()))

    is_over = threading.Event()
    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def train_until(folder: Path, phase: str, act: Callable[[int], None]) -> Outcome:
    with when_ready(folder, act):
        (outcome,) = collect_workers(
            1,
            signalled.main,
            str(folder),
            phase,
            process_group=False,
            deadline_seconds=DEADLINE_SECONDS,
        )
    assert (folder / "ready").exists(), outcome
    return outcome


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Ending:
    (outcome,) = collect_workers(
        1, signalled.main, str(tmp_path_factory.mktemp("unbroken")), process_group=False
    )
    ending = outcome.value
    assert isinstance(ending, Ending)
    return ending


def check_continues(folder: Path, unbroken: Ending) -> Ending:
    """What is there is whole, and a new process ends like the unbroken run."""
    manager = SharedFSStorageManager(folder / "storage")
    assert all(manager.verify(found.storage_id) for found in manager.list())
    newest = manager.latest("run")
    done = 0 if newest is None else int(newest.metadata["steps_completed"])
    resumed = signalled.main(str(folder))
    assert resumed.continues(unbroken, done)
    return resumed


def steps(folder: Path) -> list[int]:
    return resumable.steps(folder / "storage")


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130), ("SIGHUP", 129)])
def test_a_signal_in_any_phase_stops_the_run_where_it_is(
    phase: str, name: str, code: int, tmp_path: Path, unbroken: Ending
) -> None:
    outcome = train_until(tmp_path, phase, lambda pid: os.kill(pid, signal.Signals[name]))
    assert outcome.exit_code == code, outcome
    expected = PHASES[phase]
    if expected >= 0:
        assert steps(tmp_path)[-1:] == ([expected] if expected else [])
    else:
        assert len(steps(tmp_path)) == 2  # the one that it was saving, and the one of the stop
    resumed = check_continues(tmp_path, unbroken)
    if phase == "validation":  # the resumed run begins with the one that was cut short
        assert resumed.validations == unbroken.validations


def test_a_script_says_how_to_resume_and_leaves_with_143(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DET_PROGRESS")
    with when_ready(tmp_path, lambda pid: os.kill(pid, signal.SIGTERM)):
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.signalled", str(tmp_path), "batch 4"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
        )
    assert done.returncode == 143, done.stderr
    assert (tmp_path / "said").read_text() == "shut down\nleft fit\n"
    assert steps(tmp_path) == [3, 5]  # nothing but the current batch was finished
    assert "SIGTERM" in done.stderr
    assert 'latest_checkpoint="latest"' in done.stderr
    assert "Traceback" not in done.stderr


def train_on_two(folder: Path, *arguments: object) -> list[Outcome]:
    return collect_workers(
        2,
        signalled.main,
        str(folder),
        *arguments,
        process_group=False,
        deadline_seconds=DEADLINE_SECONDS,
    )


@pytest.fixture(scope="module")
def unbroken_on_two(tmp_path_factory: pytest.TempPathFactory) -> list[Outcome]:
    return train_on_two(tmp_path_factory.mktemp("unbroken"))


@pytest.mark.parametrize(("phase", "rank"), [("first step", 1), ("batch 4", 0), ("validation", 1)])
def test_a_signal_to_one_of_two_ranks_stops_both(
    phase: str, rank: int, tmp_path: Path, unbroken_on_two: list[Outcome]
) -> None:
    with when_ready(tmp_path, lambda pid: os.kill(pid, signal.SIGTERM)):
        found = train_on_two(tmp_path, phase, rank)
    assert [outcome.exit_code for outcome in found] == [143, 143], found
    done = steps(tmp_path)[-1]
    assert PHASES[phase] <= done < signalled.LENGTH
    resumed = train_on_two(tmp_path)
    for whole, rest in zip(unbroken_on_two, resumed, strict=True):
        assert rest.value.continues(whole.value, done)


@pytest.mark.parametrize("phase", ["batch 4", "validation", "save"])
def test_a_second_ctrl_c_ends_the_run_at_once_and_does_no_harm(
    phase: str, tmp_path: Path, unbroken: Ending
) -> None:
    def interrupt_twice(pid: int) -> None:
        os.kill(pid, signal.SIGINT)
        eventually((tmp_path / "heard").exists)  # two at once may arrive as one
        os.kill(pid, signal.SIGINT)
        (tmp_path / "go").touch()

    (tmp_path / "hold").touch()
    outcome = train_until(tmp_path, phase, interrupt_twice)
    assert outcome.exit_code != 0
    assert "KeyboardInterrupt" in (outcome.error or "")
    assert (tmp_path / "said").read_text() == "shut down\n"
    assert set(steps(tmp_path)) <= {3, 4, 5, 6}
    check_continues(tmp_path, unbroken)


@pytest.mark.parametrize("phase", ["batch 4", "save"])
def test_sigusr1_shows_stacks_and_disturbs_nothing(
    phase: str, tmp_path: Path, unbroken: Ending
) -> None:
    def ask(pid: int) -> None:
        os.kill(pid, signal.SIGUSR1)
        (tmp_path / "go").touch()

    outcome = train_until(tmp_path, phase, ask)
    assert outcome.exit_code == 0, outcome
    assert "(most recent call first)" in outcome.output
    assert outcome.value == unbroken


@pytest.mark.parametrize("progress", ["on", "off"])
def test_a_closed_terminal_stops_the_run_with_a_checkpoint(
    progress: str, tmp_path: Path, unbroken: Ending
) -> None:
    ours, theirs = pty.openpty()
    reader = threading.Thread(target=_read_all, args=(ours, tmp_path / "ready"))
    reader.start()
    (outcome,) = collect_workers(
        1,
        _train_in_terminal,
        os.ttyname(theirs),
        str(tmp_path),
        process_group=False,
        deadline_seconds=DEADLINE_SECONDS,
        environment={"DET_PROGRESS": progress, "TERM": "xterm"},
    )
    reader.join()
    os.close(theirs)
    assert outcome.exit_code == 129, outcome
    assert steps(tmp_path) == [3, 5]
    check_continues(tmp_path, unbroken)


def _train_in_terminal(name: str, folder: str) -> None:
    os.setsid()
    terminal = os.open(name, os.O_RDWR)  # it controls the session from now on
    for descriptor in (0, 1, 2):
        os.dup2(terminal, descriptor)
    os.close(terminal)
    signalled.main(folder, "batch 4")


def _read_all(terminal: int, until: Path) -> None:
    """Read what the terminal shows, and close it, as closing a window does."""
    os.set_blocking(terminal, False)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not until.exists() and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            os.read(terminal, 1 << 16)
        time.sleep(0.005)
    os.close(terminal)
