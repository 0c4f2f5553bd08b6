"""The library is upgraded while a trial runs: the trial goes on, under a supervisor of the new."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

import determined
from determined.platform.supervisor import presence
from tests.cli.det import run_det
from tests.cli.scripts import STEPS
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


def install(folder: Path, version: str) -> None:
    """Put the library into a folder as an installer does: the old files go, new ones come."""
    new = folder.with_name(f"{folder.name}-{version}")
    source = Path(determined.__file__).parent
    shutil.copytree(source, new / "determined", ignore=shutil.ignore_patterns("__pycache__"))
    (new / "determined" / "_version.py").write_text(f'__version__ = "{version}"\n')
    if folder.exists():
        folder.rename(folder.with_name(f"{folder.name}-old"))
        shutil.rmtree(folder.with_name(f"{folder.name}-old"))
    new.rename(folder)


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
