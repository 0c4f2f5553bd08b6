"""Which paths of a checkpoint glob patterns select, the same for every kind of storage."""

from __future__ import annotations

import fnmatch
import logging
from collections.abc import Iterable, Mapping, Sequence

logger = logging.getLogger("determined.storage")

EVERYTHING = "**/*"


def remaining(resources: Mapping[str, int], patterns: Iterable[str]) -> dict[str, int]:
    """Return what is left after deleting all matches; a matched directory goes with its content."""
    patterns = list(patterns)
    if EVERYTHING in patterns:
        return {}
    matched: set[str] = set()
    for pattern in patterns:
        parts = pattern.split("/")
        if pattern.startswith("/") or ".." in parts:
            logger.warning("Pattern %r points outside the checkpoint: skipped.", pattern)
            continue
        matched.update(path for path in resources if _matches(path, pattern))
    folders = tuple(path for path in matched if path.endswith("/"))
    return {
        path: size
        for path, size in resources.items()
        if path not in matched and not path.startswith(folders)
    }


def _matches(path: str, pattern: str) -> bool:
    is_folder = path.endswith("/")
    if pattern.endswith("/") and not is_folder:
        return False
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    return _match_parts(path.rstrip("/").split("/"), parts, is_folder)


def _match_parts(names: Sequence[str], parts: Sequence[str], is_folder: bool) -> bool:
    """As `glob` does: `**` alone spans any number of folders; wildcards skip hidden names."""
    if not parts:
        return not names
    if not names:
        return is_folder and all(part == "**" for part in parts)
    if parts[0] == "**":
        if _match_parts(names, parts[1:], is_folder):
            return True
        rest = names[1:]
        return not names[0].startswith(".") and (
            _match_parts(rest, parts, is_folder) or (len(parts) == 1 and not rest)
        )
    if names[0].startswith(".") and not parts[0].startswith("."):
        return False
    return fnmatch.fnmatchcase(names[0], parts[0]) and _match_parts(names[1:], parts[1:], is_folder)
