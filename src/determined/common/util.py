"""Small helpers under the path by which existing code imports them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import IO, Any, TypeVar

T = TypeVar("T")


def chunks(lst: Sequence[T], chunk_size: int) -> Iterator[Sequence[T]]:
    """Yield pieces of `chunk_size` items; the last one may be shorter."""
    if chunk_size < 1:
        raise ValueError(f"`chunk_size` must be at least 1, got {chunk_size!r}.")
    for start in range(0, len(lst), chunk_size):
        yield lst[start : start + chunk_size]


def sizeof_fmt(val: int | float) -> str:
    """Write a number of bytes with a fitting unit: `1.5KB`."""
    size = float(val)
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if abs(size) < 1024:
            return f"{size:.1f}{unit}"
        size /= 1024
    return f"{size:.1f}PB"


def safe_load_yaml_with_exceptions(yaml_file: str | bytes | IO[Any]) -> Any:
    """Read YAML that holds plain values only, as configurations are read.

    Raises:
        ValueError: It is not YAML; says where.
    """
    from determined.config.reading.yaml_reader import read_value

    data = yaml_file if isinstance(yaml_file, (str, bytes)) else yaml_file.read()
    return read_value(data, str(getattr(yaml_file, "name", "the text")))


def yaml_safe_load(stream: str | bytes | IO[Any]) -> Any:
    """Read YAML as configurations are read: the same as `safe_load_yaml_with_exceptions`."""
    return safe_load_yaml_with_exceptions(stream)


def yaml_safe_dump(data: Any, stream: IO[str] | None = None, **options: Any) -> str | None:
    """Write plain values as YAML, to a stream or as text; keys stay in their order."""
    import yaml

    options.setdefault("sort_keys", False)
    text: str | None = yaml.safe_dump(data, stream, **options)
    return text


def debug_mode() -> bool:
    """Whether `DET_DEBUG` asks for more output."""
    return os.environ.get("DET_DEBUG", "").lower() in ("1", "true", "yes")
