"""A home whose supervisor starts when it is needed."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from determined.platform.homes.home import Home
from determined.platform.service import Service
from determined.platform.supervisor import presence
from tests.support import old_homes


@pytest.mark.slow
def test_an_older_store_is_read_as_soon_as_it_is_migrated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "home")
    old_homes.unpack(1, home.path)

    def start_slowly(home: Home) -> subprocess.Popen[bytes]:
        supervisor = [sys.executable, "-m", "determined.platform.supervisor", str(home.path)]
        return subprocess.Popen(["sh", "-c", f"sleep 2; exec {shlex.join(supervisor)}"])

    monkeypatch.setattr(presence, "start", start_slowly)
    service = Service(home)
    try:
        assert service.reader.experiment(1) is not None
    finally:
        service.close()
        presence.stop(home)
        assert service.supervised._started is not None
        service.supervised._started.wait()
