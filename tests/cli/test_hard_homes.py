"""Homes that are full, somebody else's, or oddly named: they work, or one line says why not."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from determined.platform.supervisor import presence
from tests.cli.det import run_det
from tests.cli.scripts import STEPS
from tests.support.lab import Lab
from tests.support.messages import documented

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(600)]

_NOBODY = 65534


def test_a_full_disk_holds_experiments_up_and_loses_nothing(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    script = f"mount -t tmpfs -o size=12m tmpfs {shlex.quote(str(disk))} && exec "
    script += shlex.join([sys.executable, "-m", "tests.support.full_home", str(disk)])
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "DET_SLOTS": "1", "DET_SUPERVISOR_IDLE_SECONDS": "60"},
    )
    if "unshare:" in done.stderr or "mount:" in done.stderr:
        pytest.skip("mounts need privileges")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["state"] == "COMPLETED"
    assert told["steps"] == list(range(1, 121))
    assert (told["experiments"], told["creations"]) == (1, [])
    code, words = told["create"]
    assert code == 1
    *_, last = words.splitlines()
    documented("an experiment is created on a full disk", last, disk)
    code, words = told["label"]
    assert code == 1
    documented("a command is given on a full disk", words, disk)
    code, words = told["list"]
    assert code == 0
    documented("an experiment waits for room on the disk", words, disk)


def test_a_home_of_somebody_else_is_told_in_one_line(tmp_path: Path) -> None:
    home = tmp_path / "theirs"
    home.mkdir(mode=0o700)
    (home / "store.db").touch()
    try:
        os.chown(home, _NOBODY, _NOBODY)
    except PermissionError:
        pytest.skip("only root can give a folder away")
    # Root, but without the right to look into everybody's folders.
    limits = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
    config = "name: x\nentrypoint: x\nsearcher: {name: single, metric: loss}\n"
    for words in (["e", "list"], ["e", "create", "-"], ["supervisor", "start"], ["store", "df"]):
        done = subprocess.run(
            [*limits, sys.executable, "-m", "determined.cli", *words],
            input=config,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
            env={**os.environ, "DET_HOME": str(home)},
        )
        assert (done.returncode, done.stdout) == (1, "")
        documented("the home is somebody else's", done.stderr, tmp_path)


def test_an_oddly_named_home_works_and_is_for_its_owner_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_SLOTS", "1")
    before = os.umask(0)
    try:
        lab = Lab(tmp_path / "Œuvres 'de' \"moi\" $HOME & 你好")
        lab.folder.mkdir()
        ended = lab.wait(lab.create(STEPS))
        assert (ended.state, len(lab.checkpoints(ended.id))) == ("COMPLETED", 2)
        shown = run_det("e", "logs", "1", environment={"DET_HOME": str(lab.home.path)})
        assert "ends at 20" in shown.stdout
    finally:
        os.umask(before)
        presence.stop(lab.home)
        lab.close()
    assert stat.S_IMODE(lab.home.path.stat().st_mode) == 0o700


def test_a_test_without_room_fails_in_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    config = "name: x\nentrypoint: python3 -m x\nsearcher: {name: single, metric: loss}\n"
    det = shlex.join([sys.executable, "-m", "determined.cli", "e", "create", "--test-mode", "-"])
    script = f"mount -t tmpfs -o size=64k tmpfs {shlex.quote(str(disk))} && {det}; "
    script += f"status=$?; ls -A {shlex.quote(str(disk))}; exit $status"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script],
        input=config,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "TMPDIR": str(disk), "DET_SUPERVISOR_IDLE_SECONDS": "5"},
    )
    if "unshare:" in done.stderr or "mount:" in done.stderr:
        pytest.skip("mounts need privileges")
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("det: ")
    assert "full" in line or "No space left" in line
