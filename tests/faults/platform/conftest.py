"""The platform needs no torch, and its faults have a home of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kill_points import KillPoints
from tests.support.lab import lab

__all__ = ["lab"]


@pytest.fixture(autouse=True)
def _imported_once() -> None:
    """Nothing here trains with torch in the process of the test."""


@pytest.fixture
def kill_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KillPoints:
    return KillPoints(tmp_path / "kill_points", monkeypatch)
