"""Records of the store as data, for JSON."""

from __future__ import annotations

import dataclasses
from typing import Any

from determined.cli._tables import iso_time

_TIMES = ("created", "updated", "started", "ended", "report_time", "heartbeat", "time")


def record_json(record: Any, hidden: tuple[str, ...] = ()) -> dict[str, Any]:
    """A record of the store as data: times are ISO 8601."""
    return {
        field.name: iso_time(value) if field.name in _TIMES else value
        for field in dataclasses.fields(record)
        if field.name not in hidden
        for value in [getattr(record, field.name)]
    }
