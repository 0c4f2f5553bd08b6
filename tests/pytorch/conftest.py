"""Training tests run in an empty directory: checkpoints copy the code of the working directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from determined import pytorch


@pytest.fixture(autouse=True)
def _work_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("DET_PROGRESS", "off")
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home of the test"))


@pytest.fixture
def context() -> Iterator[pytorch.PyTorchTrialContext]:
    with pytorch.init() as context:
        yield context
