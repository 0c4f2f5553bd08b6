"""Records of the store as data, for JSON."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from determined.cli._present.tables import iso_time

if TYPE_CHECKING:
    from determined.store import Checkpoint

_TIMES = ("created", "updated", "started", "ended", "report_time", "heartbeat", "time")


def record_json(record: Any, hidden: tuple[str, ...] = ()) -> dict[str, Any]:
    """A record of the store as data: times are ISO 8601."""
    return {
        field.name: iso_time(value) if field.name in _TIMES else value
        for field in dataclasses.fields(record)
        if field.name not in hidden
        for value in [getattr(record, field.name)]
    }


def checkpoint_json(checkpoint: Checkpoint) -> dict[str, Any]:
    """A checkpoint as data; where it is stored, without secrets."""
    from determined.config import masked

    content = record_json(checkpoint)
    content["storage"] = masked({"checkpoint_storage": checkpoint.storage})["checkpoint_storage"]
    return content
