"""The library is upgraded while a trial runs: the trial goes on, under a supervisor of the new."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
from pathlib import Path

import pytest

from determined.platform.supervisor import presence
from tests.cli.det import run_det
from tests.cli.scripts import STEPS
from tests.faults.platform.installing import install
from tests.support.lab import Lab, lab

__all__ = ["lab"]

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

_CONFIG = """
name: upgraded
entrypoint: python3 script.py
searcher: {name: single, metric: loss}
max_restarts: 0
"""
# Starts, waits for the upgrade, and only then imports, reports and saves.
_SCRIPT = """
import pathlib, sys, time
print("is up", sys.path, flush=True)
while not pathlib.Path({gate!r}).exists():
    time.sleep(0.02)
"""


def test_a_trial_that_runs_while_the_library_is_upgraded_goes_on(lab: Lab) -> None:
    library, gate, code = lab.folder / "library", lab.folder / "gate", lab.folder / "code"
    code.mkdir()
    (code / "config.yaml").write_text(_CONFIG)
    (code / "script.py").write_text(_SCRIPT.format(gate=str(gate)) + STEPS)
    environment = {
        "DET_HOME": str(lab.home.path),
        "PYTHONPATH": str(library),
        "PYTHONDONTWRITEBYTECODE": "",
        "DET_SUPERVISOR_IDLE_SECONDS": os.environ["DET_SUPERVISOR_IDLE_SECONDS"],
    }

    def det(*words: str) -> str:
        done = run_det(*words, environment=environment, cwd=lab.folder)
        assert done.returncode == 0, done.stderr
        return done.stdout

    install(library, "0.0.1")
    assert "0.0.1" in det("version")
    det("e", "create", str(code / "config.yaml"), str(code))
    lab.until(lambda: lab.runs(1) and "is up" in lab.log(lab.runs(1)[0]))
    old = presence.find(lab.home)
    assert old is not None
    assert old.version == "0.0.1"
    install(library, "999.0")
    det("e", "label", "add", "1", "upgraded")
    new = presence.find(lab.home)
    assert new is not None
    assert (new.version, new.pid != old.pid) == ("999.0", True)
    gate.touch()
    assert lab.wait(1).state == "COMPLETED"
    (run,) = lab.runs(1)
    assert str(library) in lab.log(run)
    (trial,) = lab.trials(1)
    assert trial.total_batches == 20
    assert len(lab.checkpoints(1)) == 2
    assert json.loads(det("e", "list", "--json"))[0]["labels"] == ["upgraded"]


def _with_newer_schema(library: Path) -> None:
    """Make it a library whose store has a table more."""
    schema = library / "determined" / "store" / "_schema.py"
    more = "MIGRATIONS = (*MIGRATIONS, 'CREATE TABLE tomorrow(x INTEGER);\\n')\n"
    schema.write_text(f"{schema.read_text()}\n{more}")


def test_an_older_client_is_refused_by_a_newer_store_and_the_run_goes_on(lab: Lab) -> None:
    """The trial, its keeper and one client are old; the supervisor and the store are new."""
    gate, code = lab.folder / "gate", lab.folder / "code"
    code.mkdir()
    old, new = lab.folder / "old", lab.folder / "new"
    variables = f"environment: {{environment_variables: ['PYTHONPATH={old}']}}\n"
    (code / "config.yaml").write_text(_CONFIG + variables)
    (code / "script.py").write_text(_SCRIPT.format(gate=str(gate)) + STEPS)
    install(old, "0.0.1")
    install(new, "999.0")
    _with_newer_schema(new)

    def det(library: Path, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {"DET_HOME": str(lab.home.path), "PYTHONPATH": str(library)}
        return run_det(*words, environment=environment, cwd=lab.folder)

    created = det(old, "e", "create", str(code / "config.yaml"), str(code))
    assert created.returncode == 0, created.stderr
    lab.until(lambda: lab.runs(1) and "is up" in lab.log(lab.runs(1)[0]))
    run = Path(lab.runs(1)[0].folder)
    lab.service.close()
    labelled = det(new, "e", "label", "add", "1", "upgraded")
    assert labelled.returncode == 0, labelled.stderr
    supervisor = presence.find(lab.home)
    assert supervisor is not None
    assert supervisor.version == "999.0"
    for words in (
        ["e", "list"],
        ["e", "kill", "1"],
        ["e", "label", "add", "1", "x"],
        ["t", "logs", "1"],
    ):
        refused = det(old, *words)
        assert refused.returncode == 1, (words, refused.stdout, refused.stderr)
        assert "Install the newer version" in refused.stderr
        assert "Traceback" not in refused.stderr
    assert presence.find(lab.home) == supervisor, "an old client ended a newer supervisor"
    gate.touch()
    waited = det(new, "e", "wait", "1")
    assert waited.returncode == 0, waited.stdout + waited.stderr
    assert str(old) in (run / "log").read_text()
    with contextlib.closing(sqlite3.connect(lab.home.path / "store.db")) as store:
        steps = store.execute(
            "SELECT count(*), max(steps) FROM report WHERE grp='training'"
        ).fetchone()
        assert steps == (20, 20)
        assert store.execute("SELECT count(*) FROM checkpoint").fetchone() == (2,)
        assert store.execute("SELECT labels FROM experiment").fetchone() == ('["upgraded"]',)


def test_clients_of_both_versions_share_a_store_that_both_know(lab: Lab) -> None:
    """An older one neither ends a newer supervisor nor is it refused."""
    old, new = lab.folder / "old", lab.folder / "new"
    install(old, "0.0.1")
    install(new, "999.0")
    number = lab.create("pass", paused=True)

    def det(library: Path, *words: str) -> None:
        environment = {"DET_HOME": str(lab.home.path), "PYTHONPATH": str(library)}
        done = run_det(*words, environment=environment, cwd=lab.folder)
        assert done.returncode == 0, done.stderr

    det(new, "e", "label", "add", str(number), "new")
    supervisor = presence.find(lab.home)
    det(old, "e", "label", "add", str(number), "old")
    det(old, "e", "activate", str(number))
    assert presence.find(lab.home) == supervisor
    assert supervisor is not None
    assert supervisor.version == "999.0"
    assert lab.wait(number).state == "COMPLETED"
    assert sorted(lab.experiment(number).labels) == ["new", "old"]
