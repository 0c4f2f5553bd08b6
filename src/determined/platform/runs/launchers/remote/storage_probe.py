"""`python -m ...storage_probe`: report whether checkpoints can be saved from here.

The section `checkpoint_storage` is read from standard input, a problem is printed to standard
output. Run with the environment of the trial, which has the credentials.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from determined.storage import build, validate_config

FOLDERS = ("shared_fs", "directory")


def problem_with_folder(section: dict[str, Any], marker: str) -> str:
    """Why a node cannot use the folder that the supervisor left a file in; "" if it can."""
    base = build(section).base_path
    assert base is not None
    if not (base / marker).exists():
        there = "does not see the same folder" if base.is_dir() else "has no folder"
        return (
            f"{there} {base}. All nodes must be able to reach the checkpoints: set "
            "`checkpoint_storage` to a shared folder, or to s3, gcs or azure."
        )
    try:
        # Several nodes may try at the same moment, and two may even be one machine.
        own = base / f"{marker}-{socket.gethostname()}-{os.getpid()}"
        own.touch()
        own.unlink()
    except OSError as error:
        return f"cannot write in {base}: {error.strerror}"
    return ""


def problem_with_store(
    section: dict[str, Any], interpreter: str, environment: dict[str, str], seconds: float
) -> str:
    """Why checkpoints cannot be saved to an object store from here; "" if they can."""
    probe = subprocess.run(
        [interpreter, "-m", __name__],
        input=json.dumps(section).encode(),
        env=environment,
        capture_output=True,
        timeout=seconds,
        check=False,
    )
    output = (probe.stdout or probe.stderr).decode(errors="replace").strip()
    return output[-1000:] if probe.returncode else ""


def leave_marker(section: dict[str, Any], name: str) -> Path | None:
    """Put a file into the checkpoint folder for nodes to find; None for object stores."""
    if section.get("type") not in FOLDERS:
        return None
    marker = marker_path(section, name)
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.touch()
    return marker


def marker_path(section: dict[str, Any], name: str) -> Path:
    """The file of that name in the checkpoint folder."""
    base = build(section).base_path
    assert base is not None
    return base / name


def main() -> int:
    try:
        validate_config(json.load(sys.stdin))
    except Exception as error:
        sys.stdout.write(f"{type(error).__name__}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
