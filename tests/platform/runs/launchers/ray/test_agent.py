"""Where an agent keeps what runs have on its node."""

from __future__ import annotations

from pathlib import Path

import pytest

from determined.errors import DeterminedError
from determined.platform.runs.launchers.ray.agent import _make_root


def test_folders_of_a_node_are_for_their_owner_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "disk"
    monkeypatch.setenv("DET_NODE_DIR", str(base))
    root = _make_root("home", "node")
    assert [path.stat().st_mode & 0o077 for path in (base, root / "runs", root / "code")] == [0] * 3
    base.chmod(0o755)
    with pytest.raises(DeterminedError, match=r"disk must be a folder that only user .* can read"):
        _make_root("home", "node")
