"""The home of a platform: every folder and file in it, by name.

store.db                     records (the `store` package)
snapshots/                   code of experiments, shared by content
creations/<uuid>/            what a client prepared for an experiment that has no id yet
experiments/<id>/            environment.json, git.diff
  trials/<id>/<run>/         run folders
checkpoints/                 checkpoint storage, unless a configuration names another
tensorboard/<trial>/         event files
inbox/                       runs that the platform did not start (`journal/_inbox.py`)
imports/                     files of experiments that are being imported
platform.yaml                what the owner set: `tracking: off`, `cluster:`, `disk_limit:`
cluster.json                 the nodes of the cluster, if runs go to one
supervisor.lock, .log, wake  the supervisor: its lock, its log, and the pipe that wakes it
"""

from __future__ import annotations

import os
from pathlib import Path

from determined._contracts.home import HOME_VARIABLE, home_path, make_private
from determined.errors import DeterminedError

_LEAST_FREE_BYTES = 1 << 16


class Home:
    """Paths below one folder; nothing is created by looking."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self.snapshots = self.path / "snapshots"
        self.creations = self.path / "creations"
        self.checkpoints = self.path / "checkpoints"
        self.inbox = self.path / "inbox"
        self.tensorboard = self.path / "tensorboard"
        self.cluster = self.path / "cluster.json"
        self.slurm = self.path / "slurm.json"
        self.supervisor_lock = self.path / "supervisor.lock"
        self.supervisor_log = self.path / "supervisor.log"
        self.wake = self.path / "wake"

    def __repr__(self) -> str:
        return f"Home({str(self.path)!r})"

    def experiment(self, experiment_id: int) -> Path:
        return self.path / "experiments" / str(experiment_id)

    def run(self, experiment_id: int, trial_id: int, run_id: int) -> Path:
        return self.experiment(experiment_id) / "trials" / str(trial_id) / str(run_id)

    def make(self) -> None:
        """Create the folder, for its owner only, before anything in it.

        It may have existed before, open to others, and may not be ours to close. So the folders
        that training code writes to are created here, too: their own mode protects what is in them.
        """
        make_private(self.path, parents=True)
        for folder in (self.checkpoints, self.creations, self.tensorboard):
            folder.mkdir(mode=0o700, exist_ok=True)

    @property
    def is_full(self) -> bool:
        """Whether its disk has no room left, so that runs and the supervisor wait."""
        try:
            disk = os.statvfs(self.path)
        except OSError:
            return False
        return disk.f_bavail * disk.f_frsize < _LEAST_FREE_BYTES

    @classmethod
    def find(cls) -> Home:
        """The home that `DET_HOME` names, else the one in the user's data directory."""
        home = cls._named()
        if home.path.is_dir() and not os.access(home.path, os.R_OK | os.X_OK):
            raise DeterminedError(
                f"The home {home.path} belongs to another user and cannot be read: set "
                f"{HOME_VARIABLE} to a folder of your own."
            )
        return home

    @classmethod
    def _named(cls) -> Home:
        named = os.environ.get(HOME_VARIABLE)
        home = cls(home_path())
        if named and not home.path.parent.is_dir():  # a disk may not be mounted: create nothing
            raise DeterminedError(
                f"{HOME_VARIABLE} is {named}, but there is no folder {home.path.parent}. Is a "
                f"disk not mounted? Otherwise create it: `mkdir -p {home.path.parent}`."
            )
        return home
