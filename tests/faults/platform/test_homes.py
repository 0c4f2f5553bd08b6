"""Homes that are moved, deleted, read-only or limited while experiments run."""

from __future__ import annotations

import contextlib
import resource
import shutil
from collections.abc import Iterator

import pytest

from determined.platform.supervisor import presence
from tests.faults.platform.random_kills import kind_of
from tests.faults.platform.steady import check_as_unbroken, script
from tests.support import faults
from tests.support.lab import Lab
from tests.support.waiting import eventually

LONG = pytest.mark.skipif(faults.factor() == 1, reason="waits for a keeper that tries for 10 s")
pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(300)]


def _supervisors(lab: Lab) -> list[str]:
    return [kind for process in lab.processes() if (kind := kind_of(process)) == "supervisor"]


def test_a_home_that_is_moved_away_is_left_alone_until_it_is_back(lab: Lab) -> None:
    experiment_id = lab.create(script(0.1), max_restarts=5)
    lab.until(lambda: lab.checkpoints(experiment_id))
    away = lab.folder / "away"
    lab.home.path.rename(away)
    eventually(lambda: not _supervisors(lab), "the end of the supervisor")
    assert not lab.home.path.exists()
    assert "no longer exists" in (away / "supervisor.log").read_text()
    away.rename(lab.home.path)
    check_as_unbroken(lab, experiment_id)


@LONG
def test_nothing_lives_on_for_a_home_that_was_deleted(lab: Lab) -> None:
    experiment_id = lab.create(script(0.1))
    lab.until(lambda: lab.checkpoints(experiment_id))
    shutil.rmtree(lab.home.path)
    eventually(lambda: not [p for p in lab.processes() if kind_of(p)], "the end of all processes")
    assert not (lab.home.path / "store.db").exists()
    lab.service.close()
    check_as_unbroken(lab, lab.create(script()))  # a new home, in the same place


@LONG
def test_a_run_whose_folder_was_deleted_is_lost_and_goes_on(lab: Lab) -> None:
    experiment_id = lab.create(script(0.1), max_restarts=5)
    lab.until(lambda: lab.checkpoints(experiment_id))
    shutil.rmtree(lab.runs(experiment_id)[0].folder)
    ended = lab.wait(experiment_id)
    assert ended.state == "COMPLETED"
    runs = lab.runs(experiment_id)
    assert (runs[0].exit_code, runs[1].exit_code) == (137, 0)
    assert presence.find(lab.home) is not None


@contextlib.contextmanager
def _quota(pid: int, most_bytes: int) -> Iterator[None]:
    """Let a process make no file larger than so."""
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


def test_a_supervisor_that_may_not_write_waits_and_loses_nothing(lab: Lab) -> None:
    experiment_id = lab.create(script(0.1))
    lab.until(lambda: lab.checkpoints(experiment_id))
    facts = presence.find(lab.home)
    assert facts is not None
    with _quota(facts.pid, 1 << 16):
        lab.until(lambda: "a tick failed" in lab.home.supervisor_log.read_text())
        assert lab.experiment(experiment_id).state == "ACTIVE"  # questions are answered
    check_as_unbroken(lab, experiment_id)
    assert len(lab.runs(experiment_id)) == 1
