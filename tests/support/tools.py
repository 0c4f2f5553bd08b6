"""Command-line tools that a test puts in the place of a vendor's."""

from __future__ import annotations

from pathlib import Path

import pytest


def install(directory: Path, tool: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a shell script the only tool of that name."""
    path = directory / tool
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")
