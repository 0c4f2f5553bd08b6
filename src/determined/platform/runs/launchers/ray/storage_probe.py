"""`python -m ...storage_probe`: report whether checkpoints can be saved from here.

The section `checkpoint_storage` is read from standard input, a problem is printed to standard
output. Run with the environment of the trial, which has the credentials.
"""

from __future__ import annotations

import json
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
        own = base / f"{marker}-node"
        own.touch()
        own.unlink()
    except OSError as error:
        return f"cannot write in {base}: {error.strerror}"
    return ""


def leave_marker(section: dict[str, Any], name: str) -> Path | None:
    """Put a file into the checkpoint folder for nodes to find; None for object stores."""
    if section.get("type") not in FOLDERS:
        return None
    base = build(section).base_path
    assert base is not None
    base.mkdir(parents=True, exist_ok=True)
    (base / name).touch()
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
