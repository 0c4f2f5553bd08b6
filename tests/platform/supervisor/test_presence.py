"""Supervisors come and go: none too many, none too few, no command lost."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from pathlib import Path

import psutil
import pytest

from determined.config import Completion, load
from determined.errors import DeterminedError
from determined.platform.homes.home import Home
from determined.platform.service import Service
from determined.platform.supervisor import presence
from tests.support.lab import Lab

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]


def test_no_command_is_lost_while_supervisors_leave(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_SUPERVISOR_IDLE_SECONDS", "0.05")
    made: list[int] = []

    def create() -> None:
        service = Service(lab.home)
        for _ in range(10):
            time.sleep(0.02 * (len(made) % 7))  # at any moment of a supervisor's short life
            made.append(create_paused(service, lab.folder))
        service.close()

    threads = [threading.Thread(target=create) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == list(range(1, 31))
    assert len(lab.service.reader.experiments(limit=100).rows) == 30


def create_paused(service: Service, folder: Path) -> int:
    storage = {"type": "shared_fs", "host_path": str(folder / "checkpoints")}
    values = {
        "name": "test",
        "entrypoint": "true",
        "searcher": {"name": "single", "metric": "loss"},
    }
    loaded = load(values, completion=Completion(created=7, checkpoint_storage=storage))
    return service.create(loaded, service.take_snapshot(None), None, paused=True)


def test_there_is_one_supervisor_however_many_are_started(lab: Lab) -> None:
    lab.wait(lab.create("pass"))
    presence.stop(lab.home)
    for _ in range(5):
        presence.start(lab.home)
    lab.until(lambda: presence.find(lab.home) is not None)
    lab.until(lambda: len(supervisors(lab)) == 1)


def supervisors(lab: Lab) -> list[psutil.Process]:
    found = []
    for process in lab.processes():
        with contextlib.suppress(psutil.NoSuchProcess):  # it may end while we look
            if process.status() != psutil.STATUS_ZOMBIE:
                found += [process] if "determined.platform.supervisor" in process.cmdline() else []
    return found


def test_one_that_starts_is_not_taken_for_the_one_that_was_killed(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make()
    home.supervisor_lock.write_text(
        json.dumps({"pid": 2**30, "version": "1", "home": str(home.path)})
    )
    starting = presence.Presence.claim(home)
    assert starting is not None
    try:
        # Else whoever stops the supervisor now signals a process that may be anybody by now.
        assert presence.find(home) is None
        assert presence.stop(home) is False
    finally:
        starting.release()


def test_an_older_supervisor_is_replaced_and_its_runs_go_on(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = lab.folder / "release"
    script = f"""
import pathlib, time
while not pathlib.Path({str(release)!r}).exists():
    time.sleep(0.05)
"""
    experiment_id = lab.create(script)
    lab.until(lambda: lab.runs(experiment_id))
    old = presence.find(lab.home)
    assert old is not None
    monkeypatch.setattr(presence, "__version__", "99.1")
    other = lab.create("pass")  # a client with a newer library
    new = presence.find(lab.home)
    assert new is not None
    assert new.pid != old.pid
    monkeypatch.undo()
    release.touch()
    assert lab.wait(other).state == lab.wait(experiment_id).state == "COMPLETED"
    assert len(lab.runs(experiment_id)) == 1


@pytest.mark.parametrize(
    ("ours", "theirs", "is_older"),
    [("1.10", "1.9", True), ("1.9", "1.10", False), ("1.0", "1.0", False), ("2", "1.9.dev1", True)],
)
def test_versions_are_compared_by_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ours: str, theirs: str, is_older: bool
) -> None:
    facts = presence.Facts(os.getpid(), theirs, str(tmp_path))
    monkeypatch.setattr(presence, "__version__", ours)
    monkeypatch.setattr(presence, "find", lambda home: facts)
    monkeypatch.setattr(presence, "stop", lambda home: True)
    assert presence.end_older(Home(tmp_path)) is is_older


def test_two_homes_work_at_once_with_the_same_seeds(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "ö ther").mkdir()
    other = Lab(tmp_path / "ö ther")
    other.home = Home(tmp_path / "ö ther" / "hóme with spaces")
    other.service, other.seed = Service(other.home), lab.seed
    try:
        script = "import os, time; print(os.environ['DET_RUN_DIR']); time.sleep(1)"
        made = [(place, place.create(script)) for place in (lab, other)]
        for place, experiment_id in made:
            assert place.wait(experiment_id).state == "COMPLETED"
            (run,) = place.runs(experiment_id)
            assert str(place.home.path) in place.log(run)
        assert lab.runs(1)[0].allocation_id == other.runs(1)[0].allocation_id
    finally:
        other.close()


def test_a_home_that_cannot_be_written_says_so_and_keeps_nothing(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(DeterminedError, match="Cannot"):
        create_paused(Service(Home(file / "home")), tmp_path)


def test_what_was_prepared_for_nothing_is_swept_away(lab: Lab) -> None:
    forsaken = lab.home.creations / "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
    recent = lab.home.creations / "2b4e28ba-2fa1-11d2-883f-0016d3cca427"
    for folder in (forsaken, recent):
        folder.mkdir(parents=True)
    os.utime(forsaken, (1, 1))
    lab.wait(lab.create("pass"))
    assert not forsaken.exists()
    assert recent.exists()
