"""Kills at named events, for processes that a test starts from now on."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest

_HOOK = Path(__file__).with_name("kill_point_hook")


@dataclasses.dataclass(frozen=True)
class KillPoint:
    """When a process dies: at the `count`-th event of its own that matches, or at the next one."""

    name: str
    process: str
    event: str
    count: int = 1
    after: bool = False


class KillPoints:
    """A folder of kills to come; `pending` names those that did not happen."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        folder.mkdir()
        path = os.pathsep.join(filter(None, [str(_HOOK), os.environ.get("PYTHONPATH")]))
        monkeypatch.setenv("PYTHONPATH", path)
        monkeypatch.setenv("DET_TEST_KILL_POINTS", str(folder))

    def arm(self, *points: KillPoint) -> None:
        for point in points:
            draft = self._folder.with_name("draft")
            draft.write_text(json.dumps(dataclasses.asdict(point)))
            draft.rename(self._folder / point.name.replace(" ", "-"))

    @property
    def pending(self) -> list[str]:
        return sorted(path.name.replace("-", " ") for path in self._folder.iterdir())
