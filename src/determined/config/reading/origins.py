"""Track where each value of a merged configuration was written."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from determined.config._mask import is_about_secrets
from determined.config.messages.problems import Path, Place, Problem
from determined.config.reading.yaml_reader import Marks


class Origins:
    """Finds where a path was written, or where its nearest parent was."""

    def __init__(self, source: str) -> None:
        self._default = source
        self._found: dict[Path, tuple[str, Marks | None]] = {}

    def add(self, source: str, marks: Mapping[Path, Marks]) -> None:
        """Add the places of a file; if an earlier file has the same path, it wins."""
        for path, mark in marks.items():
            self._found.setdefault(path, (source, mark))

    def override(self, path: Path, source: str) -> None:
        """Remember that a value came from elsewhere and has no line to show."""
        inside = [known for known in self._found if known[: len(path)] == path]
        for known in inside:
            del self._found[known]
        self._found[path] = (source, None)

    def located(self, problem: Problem, moved: Mapping[Path, Path]) -> Problem:
        """Return the problem with its place, and with its path as the author wrote it."""
        path = _original(problem.path, moved)
        around = path
        while around not in self._found and around:
            around = around[:-1]
        source, marks = self._found.get(around, (self._default, None))
        if not around and path:
            marks = None  # no parent but the file itself
        place = self._place(marks, problem, exact=around == path)
        return dataclasses.replace(problem, path=path, source=source, place=place)

    @staticmethod
    def _place(marks: Marks | None, problem: Problem, *, exact: bool) -> Place | None:
        if marks is None:
            return None
        place = marks.value if exact and problem.points_at == "value" else marks.key
        # Do not repeat a line that may hold a secret.
        return dataclasses.replace(place, text="") if is_about_secrets(place.text) else place


def _original(path: Path, moved: Mapping[Path, Path]) -> Path:
    for length in range(len(path), 0, -1):
        if path[:length] in moved:
            return (*moved[path[:length]], *path[length:])
    return path
