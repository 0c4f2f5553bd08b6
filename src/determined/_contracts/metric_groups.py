"""Which metrics are those of a validation, where only their names say so."""

from __future__ import annotations

import re

_OF_VALIDATION = re.compile(r"(val|valid|validation|eval)([/_.-]|$)", re.IGNORECASE)


def is_of_validation(name: str, metric: str | None = None) -> bool:
    """Whether a metric is the one that decides, or its name begins as those of validations do."""
    return name == metric or _OF_VALIDATION.match(name) is not None
