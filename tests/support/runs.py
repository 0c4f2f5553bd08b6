"""Runs of the platform for tests: folders, waiting, and proof that nothing is left."""

from __future__ import annotations

import os
import sys
import uuid
from pathlib import Path

from determined._os import processes
from determined.platform.runs.folder import RunFolder, RunSpec
from tests.support.waiting import eventually

__all__ = ["assert_nothing_left", "eventually", "make_run", "processes_of"]


def make_run(
    folder: Path,
    *argv: str,
    script: str | None = None,
    env: dict[str, str] | None = None,
    **spec: object,
) -> RunFolder:
    """Make the folder of a run of `argv`, or of a Python script."""
    run = RunFolder(folder)
    allocation_id = f"1.{uuid.uuid4()}.1"
    words = (sys.executable, "-c", script) if script is not None else argv
    environment = {
        **os.environ,
        "DET_ALLOCATION_ID": allocation_id,
        "PYTHONUNBUFFERED": "1",
        **(env or {}),
    }
    run.create(RunSpec(tuple(words), allocation_id, **spec), environment)  # type: ignore[arg-type]  # tests give what fits
    return run


def processes_of(run: RunFolder) -> list[processes.Process]:
    """Everything of a run that lives: its keeper, and whatever has its mark."""
    keeper = None if run.keeper is None else processes.look_up(run.keeper)
    marked = processes.with_variable("DET_ALLOCATION_ID", run.spec.allocation_id)
    return [*marked, *([] if keeper is None else [keeper, *processes.descendants(keeper.pid)])]


def assert_nothing_left(run: RunFolder) -> None:
    eventually(lambda: not processes_of(run), f"the end of {processes_of(run)}")
    assert not run.is_locked
