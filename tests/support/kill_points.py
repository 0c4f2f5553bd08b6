"""Deaths at named moments, for processes that a test starts from now on."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest

_HOOK = Path(__file__).with_name("sudden_death")


@dataclasses.dataclass(frozen=True)
class Moment:
    """When a process dies: at the `count`-th event of its own that matches, or at the next one."""

    name: str
    process: str
    moment: str
    count: int = 1
    after: bool = False


class Deaths:
    """A folder of deaths to come; `pending` names those that did not happen."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        folder.mkdir()
        path = os.pathsep.join(filter(None, [str(_HOOK), os.environ.get("PYTHONPATH")]))
        monkeypatch.setenv("PYTHONPATH", path)
        monkeypatch.setenv("DET_TEST_DEATHS", str(folder))

    def arm(self, *moments: Moment) -> None:
        for moment in moments:
            draft = self._folder.with_name("moment")
            draft.write_text(json.dumps(dataclasses.asdict(moment)))
            draft.rename(self._folder / moment.name.replace(" ", "-"))

    @property
    def pending(self) -> list[str]:
        return sorted(path.name.replace("-", " ") for path in self._folder.iterdir())
