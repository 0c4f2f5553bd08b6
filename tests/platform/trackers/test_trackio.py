"""Projects of trackio."""

from __future__ import annotations

from pathlib import Path

import pytest

from determined.platform.homes.home import Home
from determined.platform.trackers import trackio
from determined.platform.trackers.importing import Wishes, import_runs
from tests.platform.trackers.made import (
    recorded,
    write_trackio,
)

pytestmark = pytest.mark.multiprocess


def test_projects_of_trackio(home: Home, tmp_path: Path) -> None:
    write_trackio(tmp_path / "mine.db")
    for _ in range(2):
        (run,) = import_runs(home, trackio.find_runs(tmp_path), Wishes(metric="train/loss"))
    assert not run.is_new
    told = recorded(home)["calm-cat"]
    assert (told["project"], told["hparams"]) == ("trackio/mine", {"lr": 0.1})
    assert (told["about"], told["best"]) == (("ada", "", ["g"]), 0.5)
    assert told["rows"] == [
        ("validation", 0, 0, {"train/loss": 1, "val/loss": 0}),
        ("validation", 1, 60, {"train/loss": 0.5, "val/loss": 1}),
    ]
