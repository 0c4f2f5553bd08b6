"""The files of a new experiment: prepared by a client, then claimed by it, or cleaned up.

creation.json   configuration, code, owner; 0600, because configurations may contain secrets. Stored
                so that records can be rebuilt.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple

from determined._os.json_file import write_json
from determined.platform.homes.home import Home
from determined.store import Experiment, Transaction

_FILE = "creation.json"
_VERSION = 1
_ABANDONED_SECONDS = 3600.0


class Creation(NamedTuple):
    """The arguments of the command `create`, and its time."""

    config: dict[str, Any]
    snapshot: str | None
    creation: str
    owner: str
    original_config: str
    parent_id: int | None
    created: float
    fork: dict[str, Any] | None = None
    """Of which trial it is a fork, at which batch, with which changes."""


def save_creation(folder: Path, creation: Creation) -> None:
    """Write it, without syncing to disk: the store has it, too."""
    write_json(folder / _FILE, {"version": _VERSION, **creation._asdict()})


def load_creation(folder: Path) -> Creation | None:
    """What was saved; None if there is nothing that can be read."""
    try:
        content: dict[str, Any] = json.loads((folder / _FILE).read_bytes())
        return Creation(**content) if content.pop("version") == _VERSION else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def experiment_folder(home: Home, record: Experiment) -> Path:
    """The folder of an experiment: what its creator prepared. Safe to repeat, in any thread."""
    folder = home.experiment(record.id)
    if not folder.exists():
        folder.parent.mkdir(exist_ok=True, mode=0o700)
        with contextlib.suppress(FileNotFoundError):  # another run of it was faster
            (home.creations / record.environment["creation"]).rename(folder)
    return folder


def sweep_creations(home: Home, transaction: Transaction) -> None:
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
