"""Processes that somebody stopped (SIGSTOP), and process numbers that somebody else has now."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from determined._os.processes import Identity, identify
from determined.errors import DeterminedError
from determined.platform.runs.folder import RunFolder
from determined.platform.supervisor import presence
from tests.faults.platform.steady import check_as_unbroken, script
from tests.support.lab import Lab
from tests.support.messages import documented

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(300)]


@contextlib.contextmanager
def _stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _running(lab: Lab, experiment_id: int) -> RunFolder:
    lab.until(lambda: lab.checkpoints(experiment_id))
    return RunFolder(lab.runs(experiment_id)[-1].folder)


def test_a_stopped_supervisor_is_named_and_what_was_asked_is_done_later(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("determined.platform.service.supervised_home._STOPPED_AFTER_SECONDS", 0.2)
    experiment_id = lab.create(script(), paused=True)
    facts = presence.find(lab.home)
    assert facts is not None
    with _stopped(facts.pid):
        with pytest.raises(DeterminedError) as failed:
            lab.service.activate(experiment_id)
        documented("the supervisor was stopped by a signal", str(failed.value), facts.pid)
    check_as_unbroken(lab, experiment_id)


def test_a_stopped_supervisor_can_be_ended(lab: Lab) -> None:
    lab.create(script(), paused=True)
    facts = presence.find(lab.home)
    assert facts is not None
    with _stopped(facts.pid):
        assert presence.stop(lab.home)


def test_stopped_trials_and_keepers_go_on_or_can_be_killed(lab: Lab) -> None:
    goes_on, killed, unkept = (lab.create(script(0.05)) for _ in range(3))
    entrypoint = _running(lab, goes_on).entrypoint
    assert entrypoint is not None
    with _stopped(entrypoint.pid):
        dies = _running(lab, killed).entrypoint
        assert dies is not None
        with _stopped(dies.pid):
            lab.service.kill(killed)
            assert lab.wait(killed).state == "CANCELED"
        keeper = _running(lab, unkept).keeper
        assert keeper is not None
        with _stopped(keeper.pid):
            lab.service.kill(unkept)
            assert lab.wait(unkept).state == "CANCELED"
    check_as_unbroken(lab, goes_on)


def test_a_process_that_has_the_number_of_a_dead_keeper_is_left_alone(lab: Lab) -> None:
    experiment_id = lab.create(script(0.1))
    folder = _running(lab, experiment_id)
    keeper, entrypoint = folder.keeper, folder.entrypoint
    assert keeper is not None
    assert entrypoint is not None
    lab.kill_supervisor()
    for pid in (keeper.pid, entrypoint.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as innocent:
        me = identify(innocent.pid)
        assert me is not None
        folder.save_processes(_of_another_time(me), _of_another_time(me))
        lab.service.pause(experiment_id)
        lab.until(lambda: not lab.service.reader.unfinished_runs())
        lab.service.activate(experiment_id)
        check_as_unbroken(lab, experiment_id)
        assert innocent.poll() is None
        innocent.kill()
    assert Path(lab.runs(experiment_id)[0].folder, "exit.json").exists()


def _of_another_time(identity: Identity) -> Identity:
    return identity._replace(start_time=identity.start_time - 1)
