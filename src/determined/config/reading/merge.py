"""Fill in missing values of a configuration from another one; pure functions over plain values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Keys = tuple[str, ...]


def merged(own: Any, other: Any) -> Any:
    """Return a configuration with missing values filled in from another one.

    Existing scalars and lists win, mappings merge key by key. A null counts as missing.
    """
    return _merge(own, other, ())


def _merge(own: Any, other: Any, path: Keys) -> Any:
    special = _SPECIAL.get(path)
    if special is not None:
        return special(own, other, path)
    if not (isinstance(own, dict) and isinstance(other, dict)):
        return own
    return _merge_mappings(own, other, path)


def _merge_mappings(own: dict[str, Any], other: dict[str, Any], path: Keys) -> dict[str, Any]:
    result = dict(own)
    for key, value in other.items():
        if result.get(key) is None:
            result[key] = value
        else:
            result[key] = _merge(result[key], value, (*path, key))
    return result


def _if_same_kind(own: Any, other: Any, path: Keys) -> Any:
    if not (isinstance(own, dict) and isinstance(other, dict)):
        return own
    key = "name" if path == ("searcher",) else "type"
    agree = own.get(key) in (None, other.get(key))
    return _merge_mappings(own, other, path) if agree else own


def _by(key: str) -> Callable[[Any, Any, Keys], Any]:
    """Add the other list's entries whose `key` is new."""

    def merge(own: Any, other: Any, path: Keys) -> Any:
        if not (isinstance(own, list) and isinstance(other, list)):
            return own
        known = [entry.get(key) for entry in own if isinstance(entry, dict)]
        new = [e for e in other if not isinstance(e, dict) or e.get(key) not in known]
        return [*own, *new]

    return merge


def _hyperparameters(own: Any, other: Any, path: Keys) -> Any:
    """Merge only groups with groups; an existing value always wins, even null."""
    groups = isinstance(own, dict) and isinstance(other, dict)
    if not groups or (path != ("hyperparameters",) and ("type" in own or "type" in other)):
        return own
    result = dict(own)
    for name, value in other.items():
        both = name in result
        result[name] = _hyperparameters(result[name], value, (*path, name)) if both else value
    return result


_SPECIAL: dict[Keys, Callable[[Any, Any, Keys], Any]] = {
    ("searcher",): _if_same_kind,
    ("checkpoint_storage",): _if_same_kind,
    ("bind_mounts",): _by("container_path"),
    ("resources", "devices"): _by("container_path"),
    ("log_policies",): _by("name"),
    ("hyperparameters",): _hyperparameters,
}
