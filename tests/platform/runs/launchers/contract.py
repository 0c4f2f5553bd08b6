"""What every launcher must do; a test class per launcher inherits this."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from determined.journal import Control
from determined.platform.runs.folder import EXITED, LOST, SIGNALLED, RunExit, RunFolder
from determined.platform.runs.launchers.protocol import (
    Launcher,
    RunAlreadyStartedError,
    RunState,
    RunStillLiveError,
)
from tests.support.runs import assert_nothing_left, eventually, make_run

_WAITS = "import time; print('up'); time.sleep(600)"
_IGNORES = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {_WAITS}"


def state(launcher: Launcher, run: RunFolder) -> RunState:
    return asyncio.run(launcher.states([run]))[0]


def start(launcher: Launcher, run: RunFolder) -> None:
    asyncio.run(launcher.start(run))


def wait(launcher: Launcher, run: RunFolder) -> RunExit | None:
    return asyncio.run(asyncio.wait_for(launcher.wait(run), 60))


def until_it_prints(run: RunFolder, launcher: Launcher | None = None) -> None:
    def has_spoken() -> bool:
        if launcher is not None:
            asyncio.run(launcher.collect(run))
        return run.log.exists() and b"up" in run.log.read_bytes()

    eventually(has_spoken, "output")


class LauncherContract:
    """`new` makes a launcher; each call stands for another supervisor process."""

    def new(self) -> Launcher:
        raise NotImplementedError

    def make_run(self, folder: Path, *argv: str, **given: Any) -> RunFolder:
        """A run that is placed where the launcher starts runs."""
        return make_run(folder, *argv, **given)

    def test_a_run_goes_from_its_folder_to_its_end(self, tmp_path: Path) -> None:
        launcher = self.new()
        run = self.make_run(tmp_path / "run", script="print('hello'); raise SystemExit(7)")
        assert state(launcher, run) is RunState.NOT_STARTED
        start(launcher, run)
        end = wait(launcher, run)
        assert end is not None
        assert (end.exit_code, end.reason, end.stopped_by) == (7, EXITED, None)
        assert run.log.read_text() == "hello\n"
        assert state(launcher, run) is RunState.ENDED
        assert_nothing_left(run)

    def test_a_run_is_never_started_twice(self, tmp_path: Path) -> None:
        launcher = self.new()
        run = self.make_run(tmp_path / "run", script=_WAITS)
        start(launcher, run)
        with pytest.raises(RunAlreadyStartedError):
            start(self.new(), run)
        asyncio.run(launcher.kill(run))
        with pytest.raises(RunAlreadyStartedError):
            start(self.new(), run)
        assert_nothing_left(run)

    def test_another_launcher_finds_and_collects_live_runs(self, tmp_path: Path) -> None:
        first, second = self.new(), self.new()
        gate = tmp_path / "gate"
        script = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)"
        runs = [self.make_run(tmp_path / f"run {n}", script=script) for n in range(2)]
        start(first, runs[0])
        states = asyncio.run(second.states(runs))
        assert states == [RunState.RUNNING, RunState.NOT_STARTED]
        assert states[0].is_live
        gate.touch()
        end = wait(second, runs[0])
        assert end is not None
        assert end.exit_code == 0
        wait(first, runs[0])
        assert_nothing_left(runs[0])

    def test_terminate_asks_and_the_exit_code_tells(self, tmp_path: Path) -> None:
        launcher = self.new()
        script = (
            "import signal, sys, time\n"
            "signal.signal(signal.SIGTERM, lambda *_: (print('saved'), sys.exit(143)))\n" + _WAITS
        )
        run = self.make_run(tmp_path / "run", script=script)
        start(launcher, run)
        until_it_prints(run, launcher)
        asyncio.run(launcher.terminate(run))
        end = wait(launcher, run)
        assert end is not None
        assert (end.exit_code, end.reason, end.stopped_by) == (143, EXITED, "SIGTERM")
        assert "saved" in run.log.read_text()
        asyncio.run(launcher.terminate(run))  # again, and late: nothing happens
        assert_nothing_left(run)

    def test_who_does_not_listen_is_killed_after_its_grace(self, tmp_path: Path) -> None:
        launcher = self.new()
        run = self.make_run(tmp_path / "run", script=_IGNORES, stop_grace_seconds=0.5)
        start(launcher, run)
        until_it_prints(run, launcher)
        asyncio.run(launcher.terminate(run))
        end = wait(launcher, run)
        assert end is not None
        assert (end.exit_code, end.reason, end.signal) == (137, SIGNALLED, "SIGKILL")
        assert end.stopped_by == "SIGKILL"
        assert_nothing_left(run)

    def test_kill_ends_everything_at_once(self, tmp_path: Path) -> None:
        launcher = self.new()
        run = self.make_run(tmp_path / "run", script=_IGNORES, stop_grace_seconds=600)
        start(launcher, run)
        until_it_prints(run, launcher)
        end = asyncio.run(asyncio.wait_for(launcher.kill(run), 60))
        assert end is not None
        assert (end.exit_code, end.stopped_by) == (137, "SIGKILL")
        assert asyncio.run(launcher.kill(run)) == end
        assert_nothing_left(run)

    def test_kill_right_after_the_start_leaves_nothing(self, tmp_path: Path) -> None:
        launcher = self.new()
        for number in range(5):
            run = self.make_run(tmp_path / f"run {number}", script=_WAITS)
            start(launcher, run)
            assert asyncio.run(asyncio.wait_for(launcher.kill(run), 60)) is not None
            assert_nothing_left(run)

    def test_a_live_run_cannot_be_declared_dead(self, tmp_path: Path) -> None:
        launcher = self.new()
        run = self.make_run(tmp_path / "run", script=_WAITS)
        start(launcher, run)
        with pytest.raises(RunStillLiveError):
            asyncio.run(launcher.declare_dead(run, "It was not."))
        asyncio.run(launcher.kill(run))
        assert_nothing_left(run)

    def test_a_run_that_never_came_up_is_declared_dead(self, tmp_path: Path) -> None:
        launcher = self.new()
        run = self.make_run(tmp_path / "run", sys.executable)
        run.mark_started()
        assert state(launcher, run) is RunState.LOST
        assert wait(launcher, run) is None
        end = asyncio.run(launcher.declare_dead(run, "The machine went down."))
        assert (end.reason, end.message) == (LOST, "The machine went down.")
        assert end.is_infrastructure_fault
        assert asyncio.run(launcher.declare_dead(run, "Again.")) == end

    def test_everything_that_was_written_comes_home_in_order(self, tmp_path: Path) -> None:
        launcher = self.new()
        script = (
            "import os\n"
            "with open(os.environ['DET_RUN_DIR'] + '/journal-1', 'wb') as file:\n"
            "    for n in range(300_000):\n"
            "        print(n)\n"
            "        file.write(n.to_bytes(40, 'little'))\n"
        )
        run = self.make_run(tmp_path / "run", script=script, env={"PYTHONUNBUFFERED": ""})
        start(launcher, run)
        end = wait(launcher, run)
        assert end is not None
        assert run.log.read_bytes() == b"".join(b"%d\n" % n for n in range(300_000))
        journal = (run.path / "journal-1").read_bytes()
        assert journal == b"".join(n.to_bytes(40, "little") for n in range(300_000))
        assert_nothing_left(run)

    def test_a_run_receives_its_control_file(self, tmp_path: Path) -> None:
        launcher = self.new()
        script = (
            "import os, time; print('up')\n"
            "path = os.environ['DET_RUN_DIR'] + '/control'\n"
            "while 'later' not in open(path).read(): time.sleep(0.01)\n"
        )
        run = self.make_run(tmp_path / "run", script=script)
        Control(reason="first").write(run.path)
        start(launcher, run)
        until_it_prints(run, launcher)
        Control(reason="later").write(run.path)
        asyncio.run(launcher.send_control(run))
        end = wait(self.new(), run)
        assert end is not None
        assert end.exit_code == 0
        assert_nothing_left(run)
