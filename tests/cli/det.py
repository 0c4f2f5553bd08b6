"""Run `det` as a user does: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_det(
    *arguments: str,
    stdin: str = "",
    environment: dict[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `python -m determined.cli` to its end, with its output as text."""
    return subprocess.run(
        [sys.executable, "-m", "determined.cli", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=100,
        cwd=cwd,
        env={**os.environ, **(environment or {})},
    )
