"""Trials that the platform runs: stopped by a file, continued, with each metric row once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from determined.journal import Control, JournalReader
from determined.store import CheckpointFilter, NewExperiment, NewTrial, Reader, Run, Writer
from tests.support.managed import LENGTH

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(600)]

_ROOT = Path(__file__).parents[2]


class Platform:
    """As much of a supervisor as one trial needs: starts runs, then reads their journals."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._config = {
            "searcher": {"metric": "error", "smaller_is_better": True},
            "checkpoint_storage": {
                "type": "shared_fs",
                "host_path": str(folder / "checkpoints"),
                "save_trial_best": 0,
                "save_trial_latest": 1,
            },
        }
        self._writer = Writer(folder / "home")
        self.reader = Reader(folder / "home")
        with self._writer.transaction() as tx:
            experiment = tx.create_experiment(
                NewExperiment(self._config, "me", "test", searcher_metric="error")
            )
            self.trial = tx.create_trial(NewTrial(experiment.id, "request", 7, {}))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the trial once more, from its newest checkpoint."""
        with self._writer.transaction() as tx:
            latest = tx.latest_checkpoint(self.trial.id)
            steps = 0 if latest is None else latest.steps_completed
            folder = self._folder / f"run-{tx.trial(self.trial.id).run_id + 1}"
            run = tx.create_run(self.trial.id, folder=str(folder), slots=[], steps_completed=steps)
            trial = tx.trial(self.trial.id)
        (folder / "info").mkdir(parents=True)
        self._describe(run, None if latest is None else latest.uuid)
        Control(
            best_validation=trial.best_validation, last_validation=trial.latest_validation_steps
        ).write(folder)
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.managed", *arguments],
            env={
                **os.environ,
                "DET_RUN_DIR": str(folder),
                "DET_INFO_DIR": str(folder / "info"),
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": os.pathsep.join([str(_ROOT), *sys.path]),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        self._drain(run)
        return done

    def _describe(self, run: Run, latest: str | None) -> None:
        files = {
            "cluster": {
                "master_url": "", "cluster_id": "c", "agent_id": "a", "slot_ids": [],
                "task_id": self.trial.task_id, "allocation_id": run.allocation_id,
                "session_token": "", "task_type": "TRIAL", "latest_checkpoint": latest,
            },
            "trial": {
                "trial_id": self.trial.id, "experiment_id": self.trial.experiment_id,
                "trial_seed": self.trial.seed, "hparams": {}, "config": self._config,
                "steps_completed": run.steps_completed, "trial_run_id": run.run_id,
                "debug": False, "inter_node_network_interface": None,
            },
            "rendezvous": {
                "container_addrs": ["127.0.0.1"], "container_rank": 0, "container_slot_counts": [0],
            },
        }  # fmt: skip
        for name, content in files.items():
            (Path(run.folder) / "info" / f"{name}.json").write_text(json.dumps(content))

    def _drain(self, run: Run) -> None:
        for path in sorted(Path(run.folder).glob("journal-*")):
            reader = JournalReader(path)
            records = list(reader.records())
            with self._writer.transaction() as tx:
                tx.read_journal(str(path), run.trial_id, run.run_id, records, reader.offset)
        with self._writer.transaction() as tx:
            tx.end_run(run.trial_id, run.run_id, 0)

    def rows(self) -> list[tuple[str, int]]:
        """The visible reports."""
        return [(r.group, r.steps_completed) for r in self.reader.metrics.reports(self.trial.id)]

    def close(self) -> None:
        """Close the store."""
        self.reader.close()
        self._writer.close()


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    made = Platform(tmp_path)
    yield made
    made.close()


def test_stopped_runs_end_with_the_weights_of_an_unbroken_one(
    tmp_path: Path, platform: Platform
) -> None:
    whole = Platform(tmp_path / "whole")
    unbroken = whole.run()
    assert unbroken.returncode == 0, unbroken.stderr
    assert "finished" in unbroken.stdout
    for number, stop_at in enumerate((1, 8), start=1):
        stopped = platform.run(str(stop_at))
        assert stopped.returncode == 0, stopped.stderr
        assert "finished" not in stopped.stdout, stopped.stderr
        assert platform.reader.runs(platform.trial.id)[number - 1].acknowledged
    last = platform.run()
    assert last.stdout == unbroken.stdout
    runs = platform.reader.runs(platform.trial.id)
    assert [run.steps_completed for run in runs] == [0, 2, 9]
    assert not runs[-1].acknowledged
    ours, theirs = platform.reader.trial(1), whole.reader.trial(1)
    assert ours is not None
    assert theirs is not None
    assert (ours.total_batches, ours.best_validation) == (LENGTH, theirs.best_validation)
    validations = [row for row in platform.rows() if row[0] == "validation"]
    assert validations == [row for row in whole.rows() if row[0] == "validation"]
    assert len(set(platform.rows())) == len(platform.rows())
    batches = [r.batch_metrics or [] for r in platform.reader.metrics.reports(1, "training")]
    assert sum(map(len, batches)) == LENGTH, "each batch was reported once"
    events = platform.reader.events(trial_id=1)
    assert [event.kind for event in events] == ["environment"] * 3  # of each run, nothing else
    whole.close()


def test_a_stopped_trial_tells_how_far_it_is(platform: Platform) -> None:
    assert platform.run("0").returncode == 0  # asked in the first batch: nothing was due yet
    trial = platform.reader.trial(1)
    assert trial is not None
    assert trial.progress == pytest.approx(1 / LENGTH)


def test_a_trial_leaves_its_checkpoints_to_the_platform(platform: Platform, tmp_path: Path) -> None:
    for stop_at in ("1", "4"):
        assert platform.run(stop_at).returncode == 0
    recorded = platform.reader.checkpoints(CheckpointFilter(trial_id=1)).rows
    assert {c.state for c in recorded} == {"COMPLETED"}
    assert len(recorded) >= 2
    for checkpoint in recorded:
        assert (tmp_path / "checkpoints" / checkpoint.uuid / "metadata.json").exists()
        assert checkpoint.metadata["run_id"] == platform.trial.task_id
