"""What others need for the same: scripts that print their samples as JSON.

They run with the interpreter that `PEERS_PYTHON` names, since they need packages that we do not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[3]
_LONGEST_SECONDS = 1800


def interpreter() -> str:
    return os.environ.get("PEERS_PYTHON", sys.executable)


def is_installed(*modules: str) -> bool:
    """Whether all of these can be imported by the peers' interpreter."""
    command = [interpreter(), "-c", f"import {', '.join(modules)}"]
    return subprocess.run(command, capture_output=True).returncode == 0


def run(name: str, *arguments: object) -> dict[str, Any]:
    """Run one of the scripts here and return what it measured."""
    command = [interpreter(), "-m", f"benchmarks.platform.peers.{name}", *map(str, arguments)]
    with tempfile.TemporaryDirectory(prefix="det-bench-", ignore_cleanup_errors=True) as scratch:
        home = {"HOME": scratch, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=scratch,
            env={**os.environ, **home, "PYTHONPATH": str(_ROOT)},
            timeout=_LONGEST_SECONDS,
        )
    if done.returncode:
        raise RuntimeError(f"{name} failed: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result
