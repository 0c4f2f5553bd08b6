"""Folders of TensorBoard's event files as runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from determined.platform.homes.home import Home
from determined.platform.trackers import tensorboard
from determined.platform.trackers.importing import Wishes, import_runs
from tests.platform.trackers.made import (
    recorded,
    write_tensorboard,
)

pytestmark = pytest.mark.multiprocess


def test_folders_of_tensorboard_are_runs_and_grow(home: Home, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    write_tensorboard(logs)
    done = list(import_runs(home, tensorboard.find_runs(logs), Wishes(project="a/b")))
    assert [(run.name, run.num_left_out) for run in done] == [("first", 1), ("keras", 0)]
    told = recorded(home)
    assert told["keras"]["rows"] == [
        ("training", 1, 2000, {"epoch_loss": 0.5}),
        ("validation", 1, 2000, {"epoch_loss": 0.25}),
    ]
    assert told["first"]["project"] == "a/b"
    assert told["first"]["times"][0] == 1000
    assert [row[:2] for row in told["first"]["rows"]][:2] == [("training", 0), ("validation", 0)]
    trial = told["keras"]["id"][1]
    for part in ("train", "validation"):
        (copy,) = (home.tensorboard / str(trial) / part).iterdir()
        assert copy.read_bytes() == (logs / "keras" / part / copy.name).read_bytes()
    write_tensorboard(logs, steps=6)  # each writer adds a file
    done = list(import_runs(home, tensorboard.find_runs(logs)))
    assert [(run.is_new, run.has_grown) for run in done] == [(False, True), (False, False)]
    told = recorded(home)
    assert len(told["first"]["rows"]) == 12
    assert len(list((home.tensorboard / str(told["first"]["id"][1])).iterdir())) == 2
    assert list((home.path / "imports").iterdir()) == []
