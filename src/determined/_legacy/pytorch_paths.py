"""Modules that older code imports our names from; the package itself has all of those names."""

from __future__ import annotations

import sys

_MODULES = (
    "_experimental",
    "_load",
    "_lr_scheduler",
    "_metric_utils",
    "_pytorch_context",
    "_pytorch_trial",
    "_reducer",
    "_trainer_utils",
)


def keep_older_paths(package: str) -> None:
    """Let `package._reducer` and its like mean `package`."""
    for name in _MODULES:
        sys.modules[f"{package}.{name}"] = sys.modules[package]
        setattr(sys.modules[package], name, sys.modules[package])
