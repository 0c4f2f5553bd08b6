"""Edit the metadata of checkpoints and models."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from determined.platform.service._service import Service


def add_metadata(service: Service, uuid: str, metadata: Mapping[str, Any]) -> None:
    """Add keys at the top level of a checkpoint's metadata, or replace their values."""
    service.checkpoint(uuid)
    service.ask("set_checkpoint", {"uuid": uuid, "add_metadata": json_values(metadata)})


def remove_metadata(service: Service, uuid: str, keys: Iterable[str]) -> None:
    """Remove keys at the top level of a checkpoint's metadata."""
    service.checkpoint(uuid)
    service.ask("set_checkpoint", {"uuid": uuid, "remove_metadata": list(keys)})


def json_values(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata as JSON values; raises ValueError for what JSON cannot represent."""
    if not isinstance(metadata, Mapping) or not all(isinstance(key, str) for key in metadata):
        raise ValueError(f"`metadata` must be a dict with string keys, got {metadata!r}.")
    try:
        content: dict[str, Any] = json.loads(json.dumps(dict(metadata)))
    except (TypeError, ValueError) as error:
        raise ValueError(f"`metadata` must be JSON-serializable: {error}.") from None
    return content
