"""Dictionaries passed from Python: only values that YAML can represent are accepted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from determined.config.messages.problems import Path, Problem
from determined.config.reading.yaml_reader import MAX_DEPTH, MAX_VALUES


def copied(config: Any, source: str) -> tuple[Any, list[Problem]]:
    """Return a copy of plain dictionaries, lists and scalars, and what could not be copied."""
    copy = _Copy(source)
    value = copy.value(config, ())
    return value, copy.problems


class _Copy:
    def __init__(self, source: str) -> None:
        self.problems: list[Problem] = []
        self._source = source
        self._num_values = 0

    def value(self, value: Any, path: Path) -> Any:
        self._num_values += 1
        if len(path) > MAX_DEPTH or self._num_values > MAX_VALUES:
            if not self.problems or self._num_values <= MAX_VALUES:
                self._problem("too large or nested too deeply for a configuration", path[:3])
            return None
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, Mapping):
            return self._mapping(value, path)
        if isinstance(value, (list, tuple)):
            return [self.value(item, (*path, i)) for i, item in enumerate(value)]
        for kind in (str, int, float):  # numpy's floats and str enums are these, and more
            if isinstance(value, kind):
                return kind(value)
        self._problem(f"expected a plain value, got an object of {type(value).__name__}", path)
        return None

    def _mapping(self, mapping: Mapping[Any, Any], path: Path) -> dict[str, Any]:
        copy = {}
        for key, value in mapping.items():
            if not isinstance(key, (str, int, float)) or isinstance(key, bool):
                self._problem(f"expected text as a key, got {type(key).__name__}", path)
                continue
            copy[str(key)] = self.value(value, (*path, str(key)))
        return copy

    def _problem(self, message: str, path: Path) -> None:
        self.problems.append(Problem(message, path=path, source=self._source))
