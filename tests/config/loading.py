"""Load configurations as a platform with a storage does."""

from __future__ import annotations

from typing import Any

from determined import config
from determined.config import Completion, Loaded

STORAGE = {"type": "shared_fs", "host_path": "/checkpoints", "save_trial_best": 3}
MINIMAL = "entrypoint: python3 train.py\nsearcher: {name: single, metric: loss}\n"


def load(text: str | dict[str, Any], *overrides: str, **given: Any) -> Loaded:
    """Load a configuration; `given` is what the platform completes it with."""
    given.setdefault("checkpoint_storage", STORAGE)
    return config.load(text, "c.yaml", overrides, Completion(**given))


def effective(text: str | dict[str, Any], *overrides: str, **given: Any) -> dict[str, Any]:
    """Return what a configuration comes to."""
    return load(text, *overrides, **given).effective
