"""What an experiment was created from, stored in its folder so that records can be rebuilt.

creation.json   configuration, code, owner; 0600, because configurations may contain secrets
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from determined._os.json_file import write_json

_FILE = "creation.json"
_VERSION = 1


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
