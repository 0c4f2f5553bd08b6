"""A home that nothing was brought into yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from determined.platform.homes.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")
