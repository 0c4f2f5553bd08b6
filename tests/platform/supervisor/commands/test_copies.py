"""Copied, moved and restored homes: none harms another, and each says what it is."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

from determined.platform.homes.home import Home
from determined.platform.service import Service
from determined.platform.supervisor import presence
from determined.store import Standing, Writer
from determined.store._identity import Identity, machine_id
from tests.cli.det import run_det
from tests.cli.scripts import ENDLESS, STEPS
from tests.support.lab import Lab, lab

__all__ = ["lab"]

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(120)]

_SHARED = {"type": "shared_fs", "save_trial_latest": 9}


def _copy(source: Path, target: Path) -> Path:
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)
    return target


def _det(home: Path, *words: str, code: int = 0) -> str:
    done = run_det(*words, environment={"DET_HOME": str(home)})
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr
    presence.stop(Home(home))
    return done.stdout + done.stderr


def _files(folder: Path) -> dict[str, bytes]:
    """All files that matter below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink() and "store." not in path.name
    }


def _set_identity(home: Path, **changes: Any) -> None:
    """Make a store believe that its home was elsewhere."""
    presence.stop(Home(home))
    with sqlite3.connect(home / "store.db") as connection:
        (text,) = connection.execute("SELECT value FROM setting WHERE name='home'").fetchone()
        value = json.dumps(json.loads(text) | changes)
        connection.execute("UPDATE setting SET value=? WHERE name='home'", (value,))
    connection.close()


def _trained(lab: Lab, **storage: str) -> list[str]:
    """The checkpoints of experiment 1, which has ended; no supervisor is left."""
    config: dict[str, Any] = {"checkpoint_storage": {**_SHARED, **storage}} if storage else {}
    number = lab.create(STEPS, **config)
    lab.wait(number)
    lab.until(lambda: not lab.service.reader.has_chores())
    presence.stop(lab.home)
    return [c.uuid for c in lab.checkpoints(number) if c.state == "COMPLETED"]


def test_what_is_deleted_in_a_copy_stays_in_the_home(lab: Lab) -> None:
    (uuid,) = _trained(lab)
    copy, before = _copy(lab.home.path, lab.folder / "backup"), _files(lab.home.path)
    said = _det(copy, "e", "delete", "-y", "1")
    assert "is a copy of the home" in said
    assert "det store adopt" in said
    assert not (copy / "checkpoints" / uuid).exists()
    assert not (copy / "experiments" / "1").exists()
    assert _files(lab.home.path) == before
    assert lab.experiment(1).state == "COMPLETED"
    assert "whole" in _det(lab.home.path, "c", "verify", uuid)


@pytest.mark.parametrize("linked", [False, True])
def test_a_storage_that_a_copy_shares_is_left_alone(lab: Lab, linked: bool) -> None:
    shared = lab.folder / "shared"
    shared.mkdir()
    if linked:
        lab.home.make()
        lab.home.checkpoints.rmdir()
        lab.home.checkpoints.symlink_to(shared)
        (uuid,) = _trained(lab)
    else:
        uuid = _trained(lab, host_path=str(shared))[-1]
    copy, before = _copy(lab.home.path, lab.folder / "backup"), _files(shared)
    assert "its files are outside it" in _det(copy, "c", "delete", "-y", uuid, code=1)
    _det(copy, "e", "set", "gc-policy", "-y", "1", *_NOTHING, code=1)
    _det(copy, "e", "delete", "-y", "1")
    assert _files(shared) == before
    assert "[]" in _det(copy, "e", "list", "--json")


_NOTHING = ("--save-experiment-best", "0", "--save-trial-best", "0", "--save-trial-latest", "0")


def test_a_copy_made_while_a_run_lives_does_not_end_it(lab: Lab) -> None:
    number = lab.create(ENDLESS)
    lab.until(lambda: "is running" in lab.log(lab.runs(number)[0]))
    copy = _copy(lab.home.path, lab.folder / "backup")
    assert "RUNNING" in _det(copy, "e", "list")  # looking starts nothing there
    assert not presence.find(Home(copy))
    _det(copy, "e", "kill", str(number))
    listed = json.loads(_det(copy, "e", "list", "--json").partition("note:")[0])
    assert [row["state"] for row in listed] == ["CANCELED"]
    log = Path(lab.runs(number)[0].folder)
    size = sum(path.stat().st_size for path in log.glob("journal-*"))
    lab.until(lambda: sum(path.stat().st_size for path in log.glob("journal-*")) > size)
    assert lab.experiment(number).state == "ACTIVE"
    assert len(lab.runs(number)) == 1
    lab.service.kill(number)
    lab.wait(number)


def test_nothing_is_started_in_a_copy(lab: Lab) -> None:
    number = lab.create(ENDLESS)
    lab.until(lambda: "is running" in lab.log(lab.runs(number)[0]))
    copy = _copy(lab.home.path, lab.folder / "backup")
    lab.service.kill(number)
    lab.wait(number)
    assert "det store adopt" in _det(copy, "e", "activate", "1", code=1)
    listed = json.loads(_det(copy, "e", "list", "--json").partition("note:")[0])
    assert [row["state"] for row in listed] == ["PAUSED"]


def test_an_adopted_copy_is_a_home_that_leaves_the_outside_alone(lab: Lab) -> None:
    shared = lab.folder / "shared"
    uuids = _trained(lab, host_path=str(shared))
    copy, before = _copy(lab.home.path, lab.folder / "backup"), _files(shared)
    assert f"{len(uuids)} checkpoints are outside" in _det(copy, "store", "adopt", "-y")
    assert "a copy of" not in _det(copy, "e", "list")
    assert "home of its own already" in _det(copy, "store", "adopt", "-y", code=1)
    assert "another home's" in _det(copy, "c", "delete", "-y", uuids[-1], code=1)
    _det(copy, "e", "set", "gc-policy", "-y", "1", *_NOTHING)
    adopted = Lab(lab.folder / "other")
    adopted.folder.mkdir()
    adopted.home = Home(copy)
    adopted.service = Service(adopted.home)
    try:
        second = adopted.wait(adopted.create(STEPS))
        assert (second.id, second.state) == (2, "COMPLETED")
        adopted.service.delete_experiments([1, 2])
    finally:
        adopted.close()
    assert _files(shared) == before
    assert lab.experiment(1).state == "COMPLETED"


def test_an_adopted_copy_goes_on_where_it_was_copied(lab: Lab) -> None:
    number = lab.create(STEPS.replace("SECONDS = 0.0", "SECONDS = 0.1"))
    lab.until(lambda: lab.checkpoints(number))
    presence.stop(lab.home)
    copy = _copy(lab.home.path, lab.folder / "backup")
    lab.wait(number)
    _det(copy, "store", "adopt", "-y")
    other = Lab(lab.folder / "other")
    other.folder.mkdir()
    other.home = Home(copy)
    other.service = Service(other.home)
    try:
        assert other.experiment(number).state == "PAUSED"
        other.service.activate(number)
        assert other.wait(number).state == "COMPLETED"
        runs = other.runs(number)
        assert len(runs) == 2
        assert runs[1].steps_completed >= 10
        assert runs[0].exit_code == 137
        assert all(str(copy) in run.folder for run in runs)
    finally:
        other.close()
    assert len(lab.runs(number)) == 1


def test_a_moved_home_goes_on_in_its_new_place(lab: Lab) -> None:
    (uuid,) = _trained(lab)
    lab.service.close()
    moved = lab.folder / "moved"
    lab.home.path.rename(moved)
    assert "whole" in _det(moved, "c", "verify", uuid)  # also before anything was rewritten
    assert "a copy of" not in _det(moved, "e", "label", "add", "1", "kept")
    with sqlite3.connect(moved / "store.db") as connection:
        paths = connection.execute("SELECT folder FROM run UNION SELECT path FROM journal")
        assert all(path.startswith(f"{moved}/") for (path,) in paths)
        notes = [t for (t,) in connection.execute("SELECT text FROM event WHERE kind='home'")]
    connection.close()
    assert notes == [f"the home was moved from {lab.home.path} to {moved}"]
    _det(moved, "e", "delete", "-y", "1")
    assert not (moved / "checkpoints" / uuid).exists()


def test_a_home_moved_while_a_run_lives_still_has_it(lab: Lab) -> None:
    number = lab.create(ENDLESS)
    lab.until(lambda: "is running" in lab.log(lab.runs(number)[0]))
    presence.stop(lab.home)
    lab.service.close()
    moved = lab.folder / "moved"
    lab.home.path.rename(moved)
    _det(moved, "e", "kill", str(number))
    end = moved / "experiments" / "1" / "trials" / "1" / "1" / "exit.json"
    run_det("e", "wait", str(number), environment={"DET_HOME": str(moved)})
    assert "SIGKILL" in end.read_text()
    left = [path.name for path in lab.home.path.glob("*")]
    assert set(left) <= {"tensorboard"}  # where a script that knows only the old place writes


def test_other_names_of_a_home_are_the_home(lab: Lab) -> None:
    (uuid,) = _trained(lab)
    link = lab.folder / "link"
    link.symlink_to(lab.home.path)
    assert "a copy of" not in _det(link, "e", "label", "add", "1", "kept")
    assert "a copy of" not in _det(lab.home.path, "e", "label", "add", "1", "more")
    assert lab.runs(1)[0].folder.startswith(str(lab.home.path))
    _det(link, "e", "delete", "-y", "1")
    assert not (lab.home.checkpoints / uuid).exists()


def test_a_backup_restored_on_another_machine_is_a_copy_until_it_is_adopted(lab: Lab) -> None:
    (uuid,) = _trained(lab)
    restored = lab.folder / "restored"
    restored.mkdir(mode=0o700)
    _det(lab.home.path, "store", "backup", str(restored / "store.db"))
    for part in ("checkpoints", "experiments", "snapshots"):
        _copy(lab.home.path / part, restored / part)
    shutil.rmtree(lab.home.path)
    _set_identity(restored, machine="id:another")
    assert "is a copy of the home" in _det(restored, "e", "list")
    assert "whole" in _det(restored, "c", "verify", uuid)
    assert "ends at 20" in _det(restored, "t", "logs", "1")
    _det(restored, "store", "adopt", "-y")
    assert "a copy of" not in _det(restored, "e", "delete", "-y", "1")
    assert not (restored / "checkpoints" / uuid).exists()


def test_an_older_store_beside_newer_checkpoints_is_no_copy(lab: Lab) -> None:
    old = lab.folder / "store.db"
    first = lab.create(STEPS)
    lab.wait(first)
    lab.until(lambda: not lab.service.reader.has_chores())
    _det(lab.home.path, "store", "backup", str(old))
    second = lab.create(STEPS)
    lab.wait(second)
    lab.until(lambda: not lab.service.reader.has_chores())
    (newer,) = [c.uuid for c in lab.checkpoints(second) if c.state == "COMPLETED"]
    presence.stop(lab.home)
    lab.service.close()
    for path in lab.home.path.glob("store.db*"):
        path.unlink()
    shutil.copy(old, lab.home.path / "store.db")
    assert "det store rebuild" in _det(lab.home.path, "e", "label", "add", "1", "x", code=1)
    assert (lab.home.checkpoints / newer).exists()
    _det(lab.home.path, "store", "rebuild", "-y")
    _det(lab.home.path, "e", "kill", "2")  # its search is not known: it was paused
    assert "whole" in _det(lab.home.path, "c", "verify", newer)
    assert "a copy of" not in _det(lab.home.path, "e", "delete", "-y", "2")
    assert not (lab.home.checkpoints / newer).exists()


def _forget_identity(home: Path) -> None:
    """As in a home of an earlier version."""
    presence.stop(Home(home))
    with sqlite3.connect(home / "store.db") as connection:
        connection.execute("DELETE FROM setting")
    connection.close()


def test_a_copy_made_before_the_upgrade_is_found_out(lab: Lab) -> None:
    (uuid,) = _trained(lab)
    _forget_identity(lab.home.path)
    copy = _copy(lab.home.path, lab.folder / "backup")
    _det(copy, "e", "delete", "-y", "1")
    assert (lab.home.checkpoints / uuid).is_dir()
    assert "a copy of" not in _det(lab.home.path, "e", "label", "add", "1", "x")
    assert "is a copy of" in _det(copy, "e", "list")


def test_a_rebuilt_copy_is_still_a_copy(lab: Lab) -> None:
    (uuid,) = _trained(lab)
    copy = _copy(lab.home.path, lab.folder / "backup")
    for path in copy.glob("store.db*"):
        path.unlink()
    _det(copy, "store", "rebuild", "-y")
    _det(copy, "e", "kill", "1")
    assert "is a copy of" in _det(copy, "e", "delete", "-y", "1")
    assert (lab.home.checkpoints / uuid).is_dir()
    assert not (copy / "checkpoints" / uuid).exists()


def _standing(home: Path, **changes: Any) -> Standing:
    values = {**vars(Identity.of(home)), **changes}
    return Identity(**values).standing(home)


def test_what_a_folder_is_to_its_home(tmp_path: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    home.mkdir()
    other.mkdir()
    Writer(other).close()
    gone = str(tmp_path / "gone")
    link = tmp_path / "link"
    link.symlink_to(home)
    assert _standing(home) is Standing.HOME
    assert _standing(home, path=str(link), inode=1) is Standing.HOME
    assert _standing(home, device=1) is Standing.HOME  # renumbered by a reboot
    assert _standing(home, path=gone) is Standing.MOVED
    assert _standing(home, path=gone, inode=1) is Standing.MOVED  # to another disk
    assert _standing(home, path=str(other)) is Standing.MOVED  # another home is in its place
    assert _standing(home, path=str(other), inode=1) is Standing.COPY
    assert _standing(home, path=gone, machine="id:other") is Standing.COPY
    assert _standing(home, machine="id:other") is Standing.COPY
    assert _standing(home, machine="name:other") is Standing.HOME  # a container's name
    assert _standing(home, path=gone, inode=1, machine="name:other") is Standing.COPY
    assert machine_id() == machine_id()
    assert os.uname().nodename not in machine_id() or machine_id().startswith("name:")
