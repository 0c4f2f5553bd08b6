"""A home in whose store every text that somebody could choose means harm."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.dashboard.make_store import make_small

# Markup, a window title, a cleared screen, both kinds of control characters, text that runs
# backwards, lines that are none, a path that leads out, a formula.
POISON = (
    "\"'><script>alert(1)</script><img src=x onerror=alert(1)>"
    "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\b\u202eevil\u2066\u2028\r\n\t../../etc/passwd {{7*7}} %s%n"
)
FORMULA = "=cmd|' /C calc'!A0"

_TEXTS = {
    "workspace": "name owner",
    "project": "name description owner key",
    "experiment": "owner name description notes original_config reason external_id",
    "trial": "reason status last_error early_exit",
    "run": "host reason preempted",
    "search_step": "sentence",
    "report": "grp",
    "summary": "grp name",
    "series": "grp name",
    "sample": "grp",
    "checkpoint": "task_id allocation_id",
    "model": "name description owner",
    "model_version": "name comment notes",
    "event": "kind text",
}
_JSON = {
    "project": "notes",
    "experiment": "labels",
    "trial": "hparams metadata",
    "report": "metrics",
    "checkpoint": "metadata resources",
    "model": "metadata labels",
    "model_version": "metadata",
    "event": "details",
}
_CONFIGURED = ("name", "description", "labels", "data", "hyperparameters", "entrypoint")


def make_hostile(home: Path, poisons: Sequence[str] = (POISON,), shift: int = 0) -> None:
    """Make a home with a bit of everything, then poison its store.

    With several poisons each place gets one of them, and another one for each `shift`.
    """

    def poison_of(place: str) -> str:
        return poisons[(zlib.crc32(place.encode()) + shift) % len(poisons)]

    make_small(home)
    store = sqlite3.connect(home / "store.db")
    with store:
        for table, columns in _TEXTS.items():
            for column in columns.split():
                # Groups that mean something, and texts that are not there, stay so.
                rule = "NOT IN ('training', 'validation')" if column == "grp" else "<> ''"
                store.execute(
                    f"UPDATE {table} SET {column}=? || {column} || ? WHERE {column} {rule}",
                    (FORMULA, poison_of(f"{table}.{column}")),
                )
        for table, columns in _JSON.items():
            for column in columns.split():
                _poison_json(store, table, column, poison_of)
        _poison_json(store, "experiment", "config", poison_of, _CONFIGURED)
        store.execute(
            "UPDATE experiment SET searcher_metric = searcher_metric || ?", (poison_of("metric"),)
        )
    store.close()
    for log in home.rglob("log"):
        with log.open("ab") as file:
            for poison in poisons:
                file.write(poison.encode() + b"\xff\xc3\n\xe2\x82")


def _poison_json(
    store: sqlite3.Connection,
    table: str,
    column: str,
    poison_of: Callable[[str], str],
    only: tuple[str, ...] = (),
) -> None:
    query = f"SELECT DISTINCT {column} FROM {table}"
    for (text,) in store.execute(query).fetchall():
        value = json.loads(text)
        poisoned = (
            {k: _poisoned(v, poison_of) if k in only else v for k, v in value.items()}
            if only
            else _poisoned(value, poison_of)
        )
        changes = (json.dumps(poisoned), text)
        store.execute(f"UPDATE {table} SET {column}=? WHERE {column}=?", changes)


def _poisoned(value: Any, poison_of: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return FORMULA + value + poison_of(value)
    if isinstance(value, list):
        return [_poisoned(item, poison_of) for item in value]
    if isinstance(value, dict):
        kept = ("type", "minval", "maxval", "vals", "val", "count", "base", "loss", "accuracy")
        return {
            k if k in kept else k + poison_of(k): v if k == "type" else _poisoned(v, poison_of)
            for k, v in value.items()
        }
    return value
