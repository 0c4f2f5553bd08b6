"""Scripts that are started by hand, with tracking on and a home of the test's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TIMEOUT_SECONDS = 120


def environment(home: Path, **variables: str) -> dict[str, str]:
    """That of a user who never heard of tracking, but for the home."""
    hidden = ("DET_TRACKING", "PYTEST_CURRENT_TEST")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    storage = str(home.parent / "storage")
    return {**kept, "DET_HOME": str(home), "DET_STORAGE": storage, **variables}


def start(home: Path, script: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    """Start a script and return at once."""
    return subprocess.Popen(
        [sys.executable, str(script), *arguments],
        env=environment(home, **variables),
        cwd=script.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(home: Path, script: Path, *arguments: str, **variables: str) -> tuple[int, str, str]:
    """Run a script to its end: status, standard output, standard error."""
    process = start(home, script, *arguments, **variables)
    output, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    return process.returncode, output, errors


def write(folder: Path, text: str, name: str = "train.py") -> Path:
    """Put a script into a folder of its own below `folder`."""
    path = folder / "scripts" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path
