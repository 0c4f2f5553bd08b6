"""Numbers that JSON lacks, by the names that JavaScript and protobuf give them."""

from __future__ import annotations

import math
from typing import Any

_NAMES = {math.inf: "Infinity", -math.inf: "-Infinity"}


def json_safe(data: Any) -> Any:
    """Data in which NaN and infinities are the strings NaN, Infinity and -Infinity."""
    if isinstance(data, float):
        return data if math.isfinite(data) else _NAMES.get(data, "NaN")
    if isinstance(data, dict):
        return {key: json_safe(value) for key, value in data.items()}
    return [json_safe(value) for value in data] if isinstance(data, (list, tuple)) else data
