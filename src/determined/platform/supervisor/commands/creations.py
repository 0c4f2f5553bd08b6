"""Files prepared for new experiments: claimed by them, or cleaned up."""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path

from determined.platform.homes.home import Home
from determined.store import Experiment, Transaction

_ABANDONED_SECONDS = 3600.0


def experiment_folder(home: Home, record: Experiment) -> Path:
    """The folder of an experiment: what its creator prepared. Safe to repeat, in any thread."""
    folder = home.experiment(record.id)
    if not folder.exists():
        folder.parent.mkdir(exist_ok=True, mode=0o700)
        with contextlib.suppress(FileNotFoundError):  # another run of it was faster
            (home.creations / record.environment["creation"]).rename(folder)
    return folder


def sweep(home: Home, transaction: Transaction) -> None:
    """Delete what was prepared for experiments that were never created.

    A client first prepares, then sends its command with the same UUID. If it died in between, there
    is no command.
    """
    if not home.creations.exists():
        return
    for folder in home.creations.iterdir():
        command = transaction.command(folder.name)
        is_refused = command is not None and command.is_ok is False
        is_old = time.time() - folder.stat().st_mtime > _ABANDONED_SECONDS
        if is_refused or (command is None and is_old):
            shutil.rmtree(folder, ignore_errors=True)
