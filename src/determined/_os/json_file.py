"""JSON files that appear whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from determined._os.sync import sync
from determined._os.weak_file_systems import fsync


def write_json(path: Path, content: Any, *, durable: bool = False) -> None:
    """Put a JSON file in place, whole, readable by its owner only; `durable` waits for the disk."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    descriptor = os.open(draft, flags, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            json.dump(content, file)
            file.flush()
            if durable:
                fsync(descriptor, path)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    if durable:
        sync(path.parent)
