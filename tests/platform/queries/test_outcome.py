"""What loads a checkpoint, and what is said of a best one that does not exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from determined import journal
from determined.dashboard.api.trials import trial as trial_page
from determined.dashboard.view import View
from determined.platform.homes.home import Home
from determined.platform.queries.outcome import load_lines
from determined.platform.service import Service
from determined.store import Checkpoint, NewExperiment, NewTrial, Reader, Writer
from tests.cli.det import run_det
from tests.support.messages import documented

_FILES = {"load_data.json": 1, "metadata.json": 1}


def made_home(folder: Path, metadata: dict[str, Any], saved_at: int) -> Home:
    """A home with a trial whose best validation is at step 1, and one checkpoint."""
    home = Home(folder / "home")
    writer = Writer(home.path)
    storage = {"type": "shared_fs", "host_path": str(home.checkpoints)}
    config = {"searcher": {"name": "single", "metric": "loss"}, "checkpoint_storage": storage}
    with writer.transaction() as tx:
        tx.create_experiment(
            NewExperiment(config, "me", "x", searcher_metric="loss", smaller_is_better=True)
        )
        tx.create_trial(NewTrial(1, "request", 1, {}))
        run = tx.create_run(1, folder=str(folder / "run"), slots=[], steps_completed=0)
        records: list[journal.Record] = [
            journal.Metrics("validation", 1, {"loss": 0.1}, None),
            journal.Checkpoint("a" * 8, saved_at, _FILES, metadata),
        ]
        tx.read_journal("j", 1, run.run_id, records, 1)
    writer.close()
    return home


def the_checkpoint(home: Home) -> Checkpoint:
    reader = Reader(home.path)
    try:
        found = reader.checkpoint("a" * 8)
        assert found is not None
        return found
    finally:
        reader.close()


@pytest.mark.parametrize(
    ("metadata", "last_argument"),
    [({}, ""), ({"measured": "averaged weights"}, ", ema=True")],
)
def test_the_weights_that_were_measured_are_loaded(
    tmp_path: Path, metadata: dict[str, Any], last_argument: str
) -> None:
    home = made_home(tmp_path, metadata, 1)
    lines = load_lines(the_checkpoint(home), Path("/c"))
    assert lines.endswith(f"load_trial_from_checkpoint_path('/c'{last_argument})")
    page = trial_page(View(Service(home)), 1)
    assert page["best_checkpoint"] == "a" * 8
    assert page["load"].endswith(f"{last_argument})")


def test_a_best_checkpoint_that_was_not_saved_is_not_offered(tmp_path: Path) -> None:
    home = made_home(tmp_path, {}, 2)
    page = trial_page(View(Service(home)), 1)
    assert page["best_checkpoint"] is None
    assert page["load"]
    answer = run_det("t", "download", "1", "--best", environment={"DET_HOME": str(home.path)})
    assert answer.returncode == 1
    documented("the best checkpoint of a trial does not exist", answer.stderr)
