"""Displays, trackers, profilers and event files see a run; they must not change it."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.faults import factor
from tests.support.victims import KINDS, Setup, check_diary, run
from tests.support.workers import collect_workers

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

DEADLINE_SECONDS = 60.0


def run_in_terminal(folder: Path, setup: dict[str, object]) -> str:
    """Train in a new interpreter, which has imported nothing yet, and return what it shows."""
    folder.mkdir()
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.victims", str(folder), json.dumps(setup)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "DET_PROGRESS": "on", "TERM": "xterm", "OMP_NUM_THREADS": "1"},
    )
    os.close(theirs)
    os.set_blocking(ours, False)
    shown = b""
    deadline = time.monotonic() + DEADLINE_SECONDS
    try:
        while process.poll() is None:
            assert time.monotonic() < deadline, shown.decode(errors="replace")
            with contextlib.suppress(OSError):  # nothing to read now
                shown += os.read(ours, 1 << 16)
            time.sleep(0.005)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert process.returncode == 0, shown.decode(errors="replace")
    return shown.decode(errors="replace")


@pytest.mark.parametrize("kind", ["conv"] if factor() == 1 else KINDS)
def test_a_run_that_is_watched_ends_like_one_that_is_not(kind: str, tmp_path: Path) -> None:
    (alone,) = collect_workers(
        1, run, Setup(kind), tmp_path / "alone", process_group=False, deadline_seconds=60
    )
    watched = run_in_terminal(tmp_path / "watched", {"kind": kind, "is_watched": True})
    assert "parameters" not in alone.output
    assert "parameters" in watched
    assert (tmp_path / "watched" / "work" / "table.csv").exists()
    assert (tmp_path / "watched" / "ending").read_text() == repr(alone.value)
    check_diary(tmp_path / "watched", tmp_path / "alone", "watched")
