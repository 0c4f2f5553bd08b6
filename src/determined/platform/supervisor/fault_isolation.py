"""Find which part of a tick failed, so that the next tick can leave it out."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

from determined.errors import RefusedError, StoreError

# Of the machine or the store: nothing in the tick caused them, and they may pass.
_NOT_ISOLATED = (OSError, MemoryError, StoreError, sqlite3.OperationalError, RefusedError)


@dataclass(frozen=True)
class FaultyCommand:
    """A command that cannot be carried out."""

    uuid: str


@dataclass(frozen=True)
class FaultyRun:
    """A run whose reports cannot be recorded."""

    trial_id: int
    run_id: int


@dataclass(frozen=True)
class FaultySearch:
    """An experiment whose search cannot continue."""

    experiment_id: int


@dataclass(frozen=True)
class FaultyItem:
    """An item of the inbox that cannot be recorded."""

    name: str


FaultSource = FaultyCommand | FaultyRun | FaultySearch | FaultyItem


class FaultError(Exception):
    """A tick failed because of one command, run, search or item."""

    def __init__(self, source: FaultSource, error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.source = source


@contextlib.contextmanager
def isolating(source: FaultSource) -> Iterator[None]:
    """Attribute to `source` what fails in the `with` block, unless an inner block did."""
    try:
        yield
    except (FaultError, *_NOT_ISOLATED):
        raise
    except Exception as error:
        raise FaultError(source, error) from error
