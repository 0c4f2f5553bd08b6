"""Queries of the store for clients and dashboards; they cannot write or block the writer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from determined.store._forks import ForkQuestions
from determined.store._identity import Identity, read_identity
from determined.store._records import COMMANDS, EVENTS, HAS_CALLS, Command, Event
from determined.store.read.changes import (
    Changed,
    ChangeWatch,
    NewPoints,
    Position,
    new_points,
    since,
)
from determined.store.read.checkpoints import CheckpointQuestions
from determined.store.read.experiments import ExperimentQuestions
from determined.store.read.listing import Tables
from determined.store.read.metrics import MetricQuestions
from determined.store.read.named import NamedQuestions
from determined.store.read.pages import Where

if TYPE_CHECKING:
    from determined.store.series.curves import CurveKey


class Reader(
    ExperimentQuestions, MetricQuestions, CheckpointQuestions, NamedQuestions, ForkQuestions
):
    """Reads the store of a home; may be shared by threads, each with its own connection."""

    @property
    def tables(self) -> Tables:
        """Lists with totals, sorting by any column, and numbered pages."""
        return Tables(self._connection, self._store)

    @property
    def identity(self) -> Identity | None:
        """The home that the store belongs to; None until its supervisor has recorded it."""
        return read_identity(self._connection)

    def watch(self) -> ChangeWatch:
        """Something that tells what changes from now on; for this thread."""
        return ChangeWatch(lambda: self._connection)

    def changed_since(self, position: Position) -> Changed:
        """The experiments and trials of all reports, events and commands after a position."""
        return since(self._connection, position)

    def new_points(
        self, keys: Sequence[CurveKey], after: int, limit: int = 2000
    ) -> tuple[dict[CurveKey, NewPoints], int]:
        """The new points of curves after a report, and the last report that they include."""
        return new_points(self._connection, keys, after, limit)

    def command(self, uuid: str) -> Command | None:
        """A command and, once there is one, its answer."""
        return COMMANDS.find(self._connection, "uuid=?", uuid)

    def has_chores(self) -> bool:
        """Whether a finished experiment has something left for the supervisor to do."""
        query = (
            "SELECT 1 FROM experiment WHERE gc_is_due "
            f"UNION ALL SELECT 1 FROM experiment WHERE {HAS_CALLS} "
            "UNION ALL SELECT 1 FROM deletion WHERE failure='' LIMIT 1"
        )
        return self._connection.execute(query).fetchone() is not None

    def has_unanswered(self) -> bool:
        """Whether a command waits for the supervisor."""
        return COMMANDS.find(self._connection, "answered IS NULL") is not None

    def events(
        self,
        *,
        experiment_id: int | None = None,
        trial_id: int | None = None,
        after: int = 0,
        limit: int = 1000,
    ) -> list[Event]:
        """The events from an id on, oldest first."""
        where = Where()
        where.equal("experiment_id", experiment_id)
        where.equal("trial_id", trial_id)
        where.add("id>?", after)
        rest = f"{where} ORDER BY id LIMIT ?"
        return EVENTS.select(self._connection, rest, *where.parameters, limit)
