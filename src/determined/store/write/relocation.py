"""Paths in records, for a home that is not where it was when they were written.

A reader translates them; the writer rewrites them.
"""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

from determined.store._identity import Identity

_TEXTS: dict[str, tuple[str, ...]] = {"run": ("folder",), "journal": ("path",)}
_DOCUMENTS: dict[str, tuple[str, ...]] = {
    "experiment": ("config", "environment"),
    "checkpoint": ("storage",),
}
_FUNCTIONS: dict[str, dict[str, tuple[str, ...]]] = {"text": _TEXTS, "document": _DOCUMENTS}
_SECTIONS = ("checkpoint_storage", "warm_start_storage")


class Relocation:
    """From where a home was to where it is."""

    def __init__(self, strays: tuple[str, ...], home: Path) -> None:
        self._strays = sorted(strays, key=len, reverse=True)
        self._home = str(home)

    @classmethod
    def of(cls, identity: Identity | None, home: Path) -> Relocation | None:
        """What has to be translated; None if the home is where it was."""
        strays = () if identity is None else identity.strays(home)
        return cls(strays, home) if strays else None

    def text(self, path: str | None) -> str | None:
        """A path, which need not be one of the home."""
        if path is None or _is_below(path, self._home):  # which may be below a stray itself
            return path
        for stray in self._strays:
            if _is_below(path, stray):
                return self._home + path[len(stray) :]
        return path

    def document(self, text: str | None) -> str | None:
        """JSON whose sections about storages have paths, or that is such a section."""
        if text is None or not any(json.dumps(stray)[1:-1] in text for stray in self._strays):
            return text
        content = json.loads(text)
        if "type" in content:
            return json.dumps(self._section(content))
        for name in _SECTIONS:
            if isinstance(content.get(name), dict):
                content[name] = self._section(content[name])
        return json.dumps(content)

    def _section(self, content: dict[str, Any]) -> dict[str, Any]:
        return {
            key: self.text(value) if isinstance(value, str) else value
            for key, value in content.items()
        }

    def define(self, connection: sqlite3.Connection) -> None:
        """Make `text` and `document` known to SQL."""
        for name in _FUNCTIONS:
            function = getattr(self, name)
            connection.create_function(f"here_{name}", 1, function, deterministic=True)

    def translate(self, connection: sqlite3.Connection) -> None:
        """Let queries of this connection see records with paths that lead here."""
        self.define(connection)
        for name, tables in _FUNCTIONS.items():
            for table, columns in tables.items():
                known = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
                seen = ", ".join(
                    f"here_{name}({column}) AS {column}" if column in columns else column
                    for column in known
                )
                connection.execute(f"CREATE TEMP VIEW {table} AS SELECT {seen} FROM main.{table}")

    def rewrite(self, connection: sqlite3.Connection) -> None:
        """Rewrite the paths in all records, within a transaction."""
        self.define(connection)
        for name, tables in _FUNCTIONS.items():
            for table, columns in tables.items():
                for column in columns:
                    new = f"here_{name}({column})"
                    connection.execute(
                        f"UPDATE {table} SET {column}={new} WHERE {column} IS NOT {new}"
                    )


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root + os.sep)
