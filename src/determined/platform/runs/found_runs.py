"""What the folders of a home say about experiments, trials and runs. Read-only."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from determined.platform.homes.creation import Creation, load_creation
from determined.platform.homes.home import Home
from determined.platform.runs.folder import RUN_VARIABLE, RunExit, RunFolder


@dataclass(frozen=True)
class FoundRun:
    """A run folder that names its trial."""

    folder: RunFolder
    cluster: dict[str, Any]
    trial: dict[str, Any]
    end: RunExit | None
    created: float

    @property
    def run_id(self) -> int:
        return int(self.trial["trial_run_id"])

    @property
    def request_id(self) -> str:
        return str(self.cluster["task_id"]).partition(".")[2]

    @property
    def journals(self) -> list[Path]:
        return sorted(self.folder.path.glob("journal-*"))


@dataclass(frozen=True)
class FoundTrial:
    """A trial by its runs, oldest first; there is at least one."""

    id: int
    runs: tuple[FoundRun, ...]

    @property
    def last(self) -> FoundRun:
        return self.runs[-1]


@dataclass(frozen=True)
class FoundExperiment:
    """An experiment by its folder."""

    id: int
    path: Path
    creation: Creation | None
    trials: tuple[FoundTrial, ...]
    newest_trial: int
    """The largest number of a trial's folder, including unreadable ones."""

    @property
    def config(self) -> dict[str, Any] | None:
        """The configuration; None if it is unknown."""
        if self.creation is not None:
            return self.creation.config
        return self.trials[-1].last.trial["config"] if self.trials else None


def find_experiments(home: Home) -> Iterator[FoundExperiment]:
    """All folders of experiments, by id."""
    for experiment_id, path in _numbered(home.path / "experiments"):
        trials, newest = [], 0
        for trial_id, folder in _numbered(path / "trials"):
            newest = trial_id
            runs = [found for _, run in _numbered(folder) if (found := _look_at(run)) is not None]
            if runs:
                trials.append(FoundTrial(trial_id, tuple(runs)))
        yield FoundExperiment(experiment_id, path, load_creation(path), tuple(trials), newest)


def recorded_root(experiments: list[FoundExperiment]) -> Path | None:
    """The path of the home when its newest run was prepared; None if there is none."""
    for experiment in reversed(experiments):
        for trial in reversed(experiment.trials):
            run = trial.last.folder
            with contextlib.suppress(OSError, ValueError, KeyError):
                return Path(run.environment[RUN_VARIABLE]).parents[4]
    return None


def newest_number(folder: Path) -> int:
    """The largest number that is the name of a folder in there; 0 if there is none."""
    return max((number for number, _ in _numbered(folder)), default=0)


def _numbered(folder: Path) -> list[tuple[int, Path]]:
    try:
        paths = list(folder.iterdir())
    except OSError:
        return []
    return sorted((int(path.name), path) for path in paths if re.fullmatch("[0-9]+", path.name))


def _look_at(path: Path) -> FoundRun | None:
    """A complete run folder; None for an incomplete one, and for logs that scripts left."""
    folder = RunFolder(path)
    try:
        cluster = json.loads((folder.info / "cluster.json").read_bytes())
        trial = json.loads((folder.info / "trial.json").read_bytes())
        created = (path / "spec.json").stat().st_mtime
        return FoundRun(folder, cluster, trial, folder.exit, created)
    except (OSError, ValueError, KeyError, TypeError):
        return None
