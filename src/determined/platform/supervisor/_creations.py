"""What doors prepare for experiments becomes theirs."""

from __future__ import annotations

import contextlib
from pathlib import Path

from determined.platform.home import Home
from determined.store import Experiment


def experiment_folder(home: Home, record: Experiment) -> Path:
    """The folder of an experiment: what its creator prepared. Taken once, safe to repeat."""
    folder = home.experiment(record.id)
    prepared = home.creations / record.environment["creation"]
    if not folder.exists() and prepared.exists():
        folder.parent.mkdir(exist_ok=True, mode=0o700)
        with contextlib.suppress(FileNotFoundError):  # another thread was quicker
            prepared.rename(folder)
    return folder
