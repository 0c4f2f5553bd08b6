"""Which checkpoints a home may delete: those inside it, and those that it saved elsewhere."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import Any


def is_inside(home: Path, path: str | os.PathLike[str]) -> bool:
    """Whether a path leads into the home, through links or not."""
    real = Path(os.path.realpath(path))
    return real.is_relative_to(os.path.realpath(home))


def is_storage_inside(home: Path, section: dict[str, Any]) -> bool:
    """Whether checkpoints in a storage are files below the home."""
    root = {"shared_fs": "host_path", "directory": "container_path"}.get(str(section.get("type")))
    path = None if root is None else section.get(root)
    if not isinstance(path, str):
        return False
    inner = section.get("storage_path") or ""
    return is_inside(home, Path(path, inner))


def mark_foreign(
    connection: sqlite3.Connection, home: Path, experiment_id: int | None = None
) -> int:
    """Mark checkpoints outside a home, all or those of an experiment, as another's; count them."""
    rows = connection.execute(
        "SELECT c.uuid, c.storage, json_extract(e.config, '$.checkpoint_storage') "
        "FROM checkpoint c LEFT JOIN experiment e ON e.id=c.experiment_id WHERE NOT c.is_foreign "
        "AND ifnull(?, c.experiment_id) IS c.experiment_id",
        (experiment_id,),
    ).fetchall()
    known: dict[str, bool] = {}
    outside = []
    for uuid, own, default in rows:
        section = default if own == "{}" else own
        if section is not None and section not in known:
            known[section] = is_storage_inside(home, json.loads(section))
        if section is not None and not known[section]:
            outside.append((uuid,))
    connection.executemany("UPDATE checkpoint SET is_foreign=1 WHERE uuid=?", outside)
    return len(outside)
