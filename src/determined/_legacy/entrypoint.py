"""The older form of an entrypoint: a trial class instead of a command."""

from __future__ import annotations

import re
from typing import TypeGuard

_TRIAL_CLASS = re.compile(r"[a-zA-Z0-9_.]+:[a-zA-Z0-9_.]+")


def is_trial_class(entrypoint: object) -> TypeGuard[str]:
    """Say whether an entrypoint has the form `module:Class`, with any blanks around it."""
    return isinstance(entrypoint, str) and _TRIAL_CLASS.fullmatch(entrypoint.strip()) is not None
