"""Fault tests train in an empty directory, silently: checkpoints copy the working directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.victims import preload


@pytest.fixture(scope="package", autouse=True)
def _imported_once() -> None:
    preload()


@pytest.fixture(autouse=True)
def _work_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("DET_PROGRESS", "off")
