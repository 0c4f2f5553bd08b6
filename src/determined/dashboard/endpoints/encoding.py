"""Encode answers as bytes: JSON that preserves NaN, compressed if that pays off."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from determined._contracts.json_numbers import json_safe

_SMALLEST_COMPRESSED = 1024


def dump(data: Any) -> bytes:
    """Data as JSON; numbers that JSON lacks become the strings NaN, Infinity and -Infinity."""
    try:
        text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    except ValueError:
        text = json.dumps(
            json_safe(data), separators=(",", ":"), allow_nan=False, ensure_ascii=False
        )
    return text.encode("utf-8", errors="replace")  # a file name may contain a lone surrogate


def compressed(
    body: bytes, media_type: str, accepted: str, headers: Mapping[str, str] | None = None
) -> Response:
    """An answer, compressed if the client accepts it and it is worth the time."""
    all_headers = {"Vary": "Accept-Encoding", **(headers or {})}
    if len(body) >= _SMALLEST_COMPRESSED and takes_gzip(accepted):
        body = gzip.compress(body, compresslevel=1, mtime=0)
        all_headers["Content-Encoding"] = "gzip"
    return Response(body, media_type=media_type, headers=all_headers)


def takes_gzip(accepted: str) -> bool:
    """Whether an Accept-Encoding header allows gzip."""
    for part in accepted.lower().split(","):
        coding, _, quality = part.strip().partition(";")
        if coding.strip() in ("gzip", "*"):
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
