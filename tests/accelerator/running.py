"""Run tests in a process in which torch has the simulated accelerator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import accelerator

_ROOT = Path(__file__).parents[2]


def run_on_device(*arguments: str, deadline_seconds: float = 300) -> str:
    """Run pytest with these arguments on the device; fail with its output if a test does."""
    reason = accelerator.reason_to_skip()
    if reason is not None:
        pytest.skip(reason)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run(
        [*command, *arguments],
        cwd=_ROOT,
        env=accelerator.environment() | {"OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=deadline_seconds,
    )
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-5000:]
    return done.stdout
