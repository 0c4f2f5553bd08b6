"""A folder of code, and a place for snapshots of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.platform.homes.code import write


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "home of it" / "snapshots"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    write(folder / "train.py", "print(1)")
    write(folder / "lib" / "net.py", "class Net: ...")
    return folder
