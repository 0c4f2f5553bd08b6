"""Homes that a command cannot use: missing, or not to be written."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from determined.platform.supervisor import presence
from tests.cli.det import run_det
from tests.cli.scripts import STEPS
from tests.support.lab import Lab
from tests.support.messages import documented

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]


def test_a_home_on_a_missing_disk_is_told_and_never_made(tmp_path: Path) -> None:
    home = tmp_path / "gone" / "home"
    for words in (["e", "list"], ["supervisor", "start"], ["store", "df"], ["e", "pause", "1"]):
        answer = run_det(*words, environment={"DET_HOME": str(home)})
        assert answer.returncode == 1
        documented("DET_HOME is on a disk that is not there", answer.stderr, tmp_path)
    assert not home.parent.exists()


def test_a_home_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")  # also root cannot make a folder here
    for words in (["supervisor", "start"], ["e", "list"], ["e", "create", "-"]):
        config = "name: x\nentrypoint: x\nsearcher: {name: single, metric: loss}\n"
        answer = run_det(*words, stdin=config, environment={"DET_HOME": str(blocked)})
        assert "Traceback" not in answer.stderr
        assert words[-1] == "list" or answer.returncode == 1


def test_a_read_only_home_can_be_looked_at_but_not_changed(lab: Lab) -> None:
    lab.wait(lab.create(STEPS))
    presence.stop(lab.home)

    def read_only(*words: str) -> subprocess.CompletedProcess[str]:
        home = shlex.quote(str(lab.home.path))
        script = f"mount --bind {home} {home} && mount -o remount,ro,bind {home} && "
        script += f"exec {sys.executable} -m determined.cli {shlex.join(words)}"
        command = ["unshare", "-m", "sh", "-c", script]
        return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)

    listed = read_only("e", "list")
    if "unshare" in listed.stderr or "mount:" in listed.stderr:
        pytest.skip("mounts need privileges")
    assert "COMPLETED" in listed.stdout
    refused = read_only("e", "archive", "1")
    assert refused.returncode == 1
    documented("the home is on a read-only disk", refused.stderr, lab.home.path)
    started = read_only("supervisor", "start")
    assert started.returncode == 1
    assert started.stderr == f"det: {lab.home.supervisor_log}: Read-only file system\n"
