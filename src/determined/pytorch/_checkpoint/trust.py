"""Objects of a user's own classes in a checkpoint: which they are, and how to have them loaded."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from determined._trial_code import is_own_module


def check_classes(classes: Any) -> None:
    """Refuse what is no list of classes."""
    if not isinstance(classes, (list, tuple, set, frozenset)):
        raise TypeError(f"`trusted_classes` must be a list of classes, got {classes!r}.")
    for kind in classes:
        if not isinstance(kind, type):
            raise TypeError(f"`trusted_classes` must hold classes only, got {kind!r}.")


def own_classes(names: Sequence[str]) -> list[str] | None:
    """Return the classes as a script would write them, None unless all are of the user's code."""
    written = [_as_written(name) for name in names]
    found = [name for name in written if name is not None]
    return found if len(found) == len(names) else None


def line_to_write(classes: Sequence[str]) -> str:
    """Return what has objects of these classes loaded."""
    return f"pytorch.init(trusted_classes=[{', '.join(classes)}])"


def _as_written(name: str) -> str | None:
    """Find a class in the running program; importing anything for it would run code."""
    module_name, _, class_name = name.rpartition(".")
    module = sys.modules.get(module_name)
    kind = getattr(module, "__dict__", {}).get(class_name)
    if not isinstance(kind, type) or not is_own_module(module_name):
        return None
    return class_name if module_name == "__main__" else name
