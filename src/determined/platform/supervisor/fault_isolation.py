"""Find which part of a tick failed, so that the next tick can leave it out."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

from determined.errors import StoreError
from determined.platform.rules.states import Refused

# Of the machine or the store: nothing in the tick caused them, and they may pass.
_NOBODYS = (OSError, MemoryError, StoreError, sqlite3.OperationalError, Refused)


@dataclass(frozen=True)
class BadCommand:
    """A command that cannot be carried out."""

    uuid: str


@dataclass(frozen=True)
class BadRun:
    """A run whose reports cannot be recorded."""

    trial_id: int
    run_id: int


@dataclass(frozen=True)
class BadSearch:
    """An experiment whose search cannot continue."""

    experiment_id: int


@dataclass(frozen=True)
class BadItem:
    """An item of the inbox that cannot be recorded."""

    name: str


Culprit = BadCommand | BadRun | BadSearch | BadItem


class BlamedError(Exception):
    """A tick failed because of one command, run, search or item."""

    def __init__(self, culprit: Culprit, error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.culprit = culprit


@contextlib.contextmanager
def blaming(culprit: Culprit) -> Iterator[None]:
    """Blame `culprit` for what fails in the `with` block, unless an inner block names another."""
    try:
        yield
    except (BlamedError, *_NOBODYS):
        raise
    except Exception as error:
        raise BlamedError(culprit, error) from error
