"""Data as JSON text that is the same for equal data, and keeps NaN and infinities."""

from __future__ import annotations

import json
import math
from typing import Any


def dump(data: Any) -> str:
    """Return the text; NaN and infinities, which JSON lacks, become tagged strings."""
    try:
        return _dumps(data)
    except ValueError:
        return _dumps(_tag(data))


def load(text: str) -> Any:
    """Return what `dump` wrote."""
    return json.loads(text, object_hook=_untag)


def _dumps(data: Any) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _tag(data: Any) -> Any:
    if isinstance(data, float) and not math.isfinite(data):
        return {"$float": repr(data)}
    if isinstance(data, dict):
        return {key: _tag(value) for key, value in data.items()}
    return [_tag(value) for value in data] if isinstance(data, (list, tuple)) else data


def _untag(data: dict[str, Any]) -> Any:
    return float(data["$float"]) if data.keys() == {"$float"} else data
