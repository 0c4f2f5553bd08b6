"""Forks: trials that share the first batches of another one, whose rows and checkpoint they need.

Rows up to the batch of a fork are its parent's and are not stored again: whatever reads the rows
of a trial reads `spans`.
"""

from __future__ import annotations

import math
import sqlite3
from typing import NamedTuple

from determined.store._records import CHECKPOINTS, FORKS, Checkpoint, Fork, is_exact
from determined.store.read.connections import Queries


class Span(NamedTuple):
    """The steps that a trial contributes to a curve: more than `after`, at most `upto`."""

    trial_id: int
    after: float = -math.inf
    upto: float = math.inf


def lineage(connection: sqlite3.Connection, trial_id: int) -> list[Fork]:
    """The forks that led to a trial, the oldest first; none if it is no fork."""
    found: list[Fork] = []
    while (fork := FORKS.find(connection, "trial_id=?", trial_id)) is not None:
        found.insert(0, fork)
        trial_id = fork.parent_trial_id
    return found


def spans(connection: sqlite3.Connection, trial_id: int) -> list[Span]:
    """Whose rows make up those of a trial, in the order of their steps."""
    found = [Span(trial_id)]
    for fork in reversed(lineage(connection, trial_id)):
        found[0] = found[0]._replace(after=float(fork.at))
        found.insert(0, Span(fork.parent_trial_id, upto=float(fork.at)))
    return found


def base_of(connection: sqlite3.Connection, trial_id: int, at: int) -> Checkpoint | None:
    """The newest exact checkpoint with files at or before a step, of a trial or its ancestors."""
    usable = f"state='COMPLETED' AND {is_exact('checkpoint')}"
    for span in reversed(spans(connection, trial_id)):
        found = CHECKPOINTS.find(
            connection,
            f"trial_id=? AND steps_completed<=? AND {usable} "
            "ORDER BY steps_completed DESC, report_time DESC",
            span.trial_id,
            min(at, span.upto),
        )
        if found is not None:
            return found
    return None


def pinned(connection: sqlite3.Connection, experiment_id: int) -> dict[str, int]:
    """The checkpoints of an experiment that forks outside it start from, and one fork of each."""
    rows = connection.execute(
        "SELECT c.uuid, f.trial_id FROM fork f JOIN checkpoint c ON c.uuid=f.checkpoint_uuid "
        "JOIN trial t ON t.id=f.trial_id WHERE c.experiment_id=? AND t.experiment_id<>?",
        (experiment_id, experiment_id),
    )
    return dict(rows.fetchall())


def bases(connection: sqlite3.Connection) -> dict[str, int]:
    """The checkpoints that must stay because forks start from them, and one fork of each.

    A fork within an experiment, which its search made, needs its base only until it has a
    checkpoint of its own: there may be many, and what they share can be trained again.
    """
    rows = connection.execute(
        "SELECT f.checkpoint_uuid, f.trial_id FROM fork f JOIN trial t ON t.id=f.trial_id "
        "JOIN trial p ON p.id=f.parent_trial_id WHERE f.checkpoint_uuid IS NOT NULL AND "
        "(t.experiment_id<>p.experiment_id OR NOT EXISTS (SELECT 1 FROM checkpoint c "
        f"WHERE c.trial_id=f.trial_id AND c.state='COMPLETED' AND {is_exact('c')}))"
    )
    return dict(rows.fetchall())


def needed_steps(connection: sqlite3.Connection, experiment_id: int) -> dict[int, int]:
    """The trials of an experiment that forks outside it need, and up to which step."""
    rows = connection.execute(
        "SELECT p.id, max(f.at) FROM fork f JOIN trial p ON p.id=f.parent_trial_id "
        "JOIN trial t ON t.id=f.trial_id WHERE p.experiment_id=? AND t.experiment_id<>? "
        "GROUP BY p.id",
        (experiment_id, experiment_id),
    )
    found: dict[int, int] = dict(rows.fetchall())
    waiting = list(found)
    while waiting:  # a trial that a search forked needs its parent, in the same experiment
        fork = FORKS.find(connection, "trial_id=?", waiting.pop())
        if fork is None:
            continue
        parent = connection.execute(
            "SELECT id FROM trial WHERE id=? AND experiment_id=?",
            (fork.parent_trial_id, experiment_id),
        ).fetchone()
        if parent is not None and found.get(fork.parent_trial_id, -1) < fork.at:
            found[fork.parent_trial_id] = fork.at
            waiting.append(fork.parent_trial_id)
    return found


class Forks:
    """Forks within a transaction of the writer."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add(self, fork: Fork) -> None:
        """Record a fork, from when on it keeps what it needs of its parent."""
        FORKS.insert(self._connection, {name: getattr(fork, name) for name in FORKS.fields})

    def find(self, trial_id: int) -> Fork | None:
        """Where a trial comes from; None if it is no fork."""
        return FORKS.find(self._connection, "trial_id=?", trial_id)

    def lineage(self, trial_id: int) -> list[Fork]:
        """The forks that led to a trial, the oldest first."""
        return lineage(self._connection, trial_id)

    def base(self, trial_id: int, at: int) -> Checkpoint | None:
        """The checkpoint that a fork of a trial at a step starts from."""
        return base_of(self._connection, trial_id, at)

    def mark_checked(self, trial_id: int) -> None:
        """Record that a fork's changes are possible."""
        FORKS.update(self._connection, "trial_id=?", [trial_id], {"is_checked": True})


class ForkQueries(Queries):
    """Queries on forks."""

    def fork(self, trial_id: int) -> Fork | None:
        """Where a trial comes from; None if it is no fork."""
        return FORKS.find(self._connection, "trial_id=?", trial_id)

    def forks_of(self, trial_id: int) -> list[Fork]:
        """The forks of a trial, by the step at which they leave it."""
        where = "WHERE parent_trial_id=? ORDER BY at, trial_id"
        return FORKS.select(self._connection, where, trial_id)

    def base(self, trial_id: int, at: int) -> Checkpoint | None:
        """The checkpoint that a fork of a trial at a step would start from."""
        return base_of(self._connection, trial_id, at)
