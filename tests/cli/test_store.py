"""`det store`: measured, checked, backed up, pruned."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
from pathlib import Path

import pytest

from tests.cli.det import run_det, told_by
from tests.cli.scripts import STEPS
from tests.support.lab import Lab

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]


def test_the_home_is_measured_checked_and_backed_up(lab: Lab, tmp_path: Path) -> None:
    lab.wait(lab.create(STEPS))
    parts = {part["what"]: part["bytes"] for part in json.loads(told_by("store", "df", "--json"))}
    assert parts["records"] > 0
    assert parts["checkpoints"] >= 2
    assert parts["runs and logs"] > 0
    assert "is intact" in told_by("store", "check")
    copy = tmp_path / "copy.db"
    told = json.loads(told_by("store", "backup", str(copy), "--json"))
    assert told == {"path": str(copy), "bytes": copy.stat().st_size}
    connection = sqlite3.connect(copy)
    assert connection.execute("SELECT count(*) FROM trial").fetchone() == (1,)
    connection.close()
    told_by("store", "backup", str(copy), code=1)


def test_pruning_removes_what_no_experiment_needs(lab: Lab) -> None:
    number = lab.create(STEPS)
    lab.wait(number)
    used = lab.experiment(number).snapshot_id
    assert used is not None
    long_ago = time.time() - 10 * 86400
    for name in ("unused", used):
        (lab.home.snapshots / name / "tree").mkdir(parents=True, exist_ok=True)
        os.utime(lab.home.snapshots / name, (long_ago, long_ago))
    (lab.home.snapshots / "young").mkdir()
    (lab.home.snapshots / "young" / "weights").write_bytes(bytes(3_000_000))
    told, _, kept = told_by("store", "prune", "--dry-run").partition("Kept, although")
    assert "unused" in told
    assert "young" not in told
    (line,) = [line for line in kept.splitlines() if "young" in line]
    assert "MB" in line
    assert "newer than 24 h: a command may be about to use it" in line
    assert "--workdirs removes them" in kept
    assert (lab.home.snapshots / "unused").exists()
    assert run_det("store", "prune", stdin="n\n").returncode == 1
    assert "Freed" in told_by("store", "prune", "--yes")
    left = {path.name for path in lab.home.snapshots.iterdir()}
    assert left == {used, "young"}
    workdir = Path(lab.runs(number)[0].folder, "workdir")
    assert workdir.exists()
    told_by("store", "prune", "--yes", "--workdirs")
    assert not workdir.exists()
    assert "ends at 20" in told_by("t", "logs", "1")
    assert told_by("store", "prune").startswith("Nothing to remove.\nKept, although no experiment")
    shutil.rmtree(lab.home.snapshots / "young")
    assert told_by("store", "prune") == "Nothing to remove.\n"
