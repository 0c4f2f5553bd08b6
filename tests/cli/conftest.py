"""Commands of tests never touch the home of whoever runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.lab import lab

__all__ = ["lab"]


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DET_STORAGE", raising=False)
