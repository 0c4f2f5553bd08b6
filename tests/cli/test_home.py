"""`det supervisor`, `det slot`, `det store`: the machine and the home."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from determined._version import __version__
from determined.platform.supervisor import presence
from tests.cli.det import run_det
from tests.cli.scripts import ENDLESS, STEPS
from tests.support.lab import Lab
from tests.support.messages import documented

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]


def _det(*words: str, code: int = 0) -> str:
    answer = run_det(*words)
    assert answer.returncode == code, answer.stderr
    assert "Traceback" not in answer.stderr
    return answer.stdout


def test_a_supervisor_is_started_seen_and_stopped(lab: Lab) -> None:
    assert _det("supervisor", "status", "--json", code=1) == "null\n"
    assert "No supervisor is running" in _det("supervisor", "status", code=1)
    assert "Started the supervisor" in _det("supervisor", "start")
    facts = json.loads(_det("supervisor", "status", "--json"))
    assert facts["version"] == __version__
    assert facts["home"] == str(lab.home.path)
    assert facts["slots"] == 2
    os.kill(facts["pid"], 0)
    assert "already" in _det("supervisor", "start")
    assert json.loads(_det("supervisor", "start", "--json")) == facts
    assert json.loads(_det("supervisor", "stop", "--json")) == {"stopped": facts["pid"]}
    assert presence.find(lab.home) is None
    assert _det("supervisor", "stop") == "No supervisor is running.\n"
    _det("supervisor", "logs", "--tail", "2")


def test_any_question_restarts_a_supervisor_that_died(lab: Lab) -> None:
    number = lab.create(ENDLESS)
    lab.until(lambda: lab.trials(number)[0].total_batches > 0)
    lab.kill_supervisor()
    _det("e", "list")
    lab.until(lambda: presence.find(lab.home) is not None)
    lab.service.kill(number)
    lab.wait(number)


def test_slots_tell_who_runs_and_who_waits_why(lab: Lab) -> None:
    lab.create(
        ENDLESS,
        searcher={"name": "grid", "metric": "loss"},
        hyperparameters={"lr": {"type": "categorical", "vals": [1, 2]}},
        resources={"max_slots": 1},
    )
    lab.until(lambda: len(lab.service.reader.unfinished_runs()) == 1)
    lab.create(ENDLESS)
    lab.until(lambda: len(lab.service.reader.unfinished_runs()) == 2)
    lab.create(ENDLESS, resources={"slots_per_trial": 2})
    told = json.loads(_det("slot", "list", "--json"))
    (first,) = {run.trial_id for run in lab.runs(1)}
    assert sorted(slot["trial_id"] for slot in told["slots"]) == [first, 3]
    assert {item["trial_id"]: item["reason"] for item in told["waiting"]} == {
        3 - first: "its experiment uses 1 of max_slots 1",
        4: "needs 2 slots, none free",
    }
    assert "needs 2 slots, none free" in _det("slot")
    for number in (1, 2, 3):
        lab.service.kill(number)
    for number in (1, 2, 3):
        lab.wait(number)
    assert "free" in _det("slot", "list")


def test_the_home_is_measured_checked_and_backed_up(lab: Lab, tmp_path: Path) -> None:
    lab.wait(lab.create(STEPS))
    parts = {part["what"]: part["bytes"] for part in json.loads(_det("store", "df", "--json"))}
    assert parts["records"] > 0
    assert parts["checkpoints"] >= 2
    assert parts["runs and logs"] > 0
    assert "is intact" in _det("store", "check")
    copy = tmp_path / "copy.db"
    told = json.loads(_det("store", "backup", str(copy), "--json"))
    assert told == {"path": str(copy), "bytes": copy.stat().st_size}
    connection = sqlite3.connect(copy)
    assert connection.execute("SELECT count(*) FROM trial").fetchone() == (1,)
    connection.close()
    _det("store", "backup", str(copy), code=1)


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
    told, _, kept = _det("store", "prune", "--dry-run").partition("Kept, although")
    assert "unused" in told
    assert "young" not in told
    (line,) = [line for line in kept.splitlines() if "young" in line]
    assert "MB" in line
    assert "newer than 24 h: a command may be about to use it" in line
    assert "--workdirs removes them" in kept
    assert (lab.home.snapshots / "unused").exists()
    assert run_det("store", "prune", stdin="n\n").returncode == 1
    assert "Freed" in _det("store", "prune", "--yes")
    left = {path.name for path in lab.home.snapshots.iterdir()}
    assert left == {used, "young"}
    workdir = Path(lab.runs(number)[0].folder, "workdir")
    assert workdir.exists()
    _det("store", "prune", "--yes", "--workdirs")
    assert not workdir.exists()
    assert "ends at 20" in _det("t", "logs", "1")
    assert _det("store", "prune").startswith("Nothing to remove.\nKept, although no experiment")
    shutil.rmtree(lab.home.snapshots / "young")
    assert _det("store", "prune") == "Nothing to remove.\n"


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
