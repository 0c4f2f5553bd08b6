"""Queries on checkpoints: which there are, how good they are, which may be deleted."""

from __future__ import annotations

import json
from typing import Any

from determined._contracts.retention import Candidate, Retention, kept
from determined._contracts.tensor_hashes import TensorHashes
from determined.errors import StoreError
from determined.store._records import (
    CHECKPOINTS,
    DELETIONS,
    EXPERIMENTS,
    TERMINAL_STATES,
    Checkpoint,
    Deletion,
    RatedCheckpoint,
    is_exact,
)
from determined.store.read.connections import Connected
from determined.store.read.pages import (
    CHECKPOINT_ORDERS,
    CheckpointFilter,
    Cursor,
    Order,
    Page,
    read_page,
)
from determined.store.series.summary import type_of


class CheckpointQuestions(Connected):
    """Queries on checkpoints and their deletion."""

    def checkpoint(self, uuid: str) -> Checkpoint | None:
        """A checkpoint, None if it is unknown."""
        return CHECKPOINTS.find(self._connection, "uuid=?", uuid)

    def tensor_hashes(self, uuid: str) -> TensorHashes | None:
        """What a checkpoint held, tensor by tensor, also if its files are gone.

        None if it is unknown, or was saved by an earlier release or by other code.
        """
        query = "SELECT hashes FROM checkpoint WHERE uuid=?"
        row = self._connection.execute(query, (uuid,)).fetchone()
        try:
            return TensorHashes.from_record(row[0]) if row is not None and row[0] else None
        except ValueError:
            return None

    def checkpoints_beginning_with(self, prefix: str, limit: int) -> list[Checkpoint]:
        """Checkpoints whose UUIDs begin so, at most `limit` of them."""
        condition = "WHERE uuid>=? AND uuid<? ORDER BY uuid LIMIT ?"
        return CHECKPOINTS.select(self._connection, condition, prefix, f"{prefix}\U0010ffff", limit)

    def checkpoints(
        self,
        where: CheckpointFilter,
        order: Order = Order("report_time"),  # noqa: B008
        limit: int | None = None,
        after: Cursor | None = None,
    ) -> Page[Checkpoint]:
        """A page of checkpoints."""
        return read_page(
            self._connection, CHECKPOINTS, where.where(), order, CHECKPOINT_ORDERS, limit, after
        )

    def rated_checkpoints(
        self, where: CheckpointFilter, metric: str | None = None
    ) -> list[RatedCheckpoint]:
        """Checkpoints with the validation at their step, by report time.

        Args:
            where: which checkpoints.
            metric: the metric that rates them; by default their experiment's searcher metric.
        """
        condition = where.where()
        sql = (
            f"SELECT r.metrics, r.id, e.searcher_metric, {CHECKPOINTS.columns} FROM checkpoint "
            "LEFT JOIN experiment e ON e.id=checkpoint.experiment_id "
            "LEFT JOIN report r ON r.trial_id=checkpoint.trial_id AND r.grp='validation' "
            "AND r.steps=checkpoint.steps_completed AND r.archived=0 "
            f"{condition} ORDER BY checkpoint.report_time, checkpoint.uuid"
        )
        rated = []
        for text, report_id, default, *row in self._connection.execute(sql, condition.parameters):
            metrics = None if text is None else json.loads(text)
            value: Any = None if metrics is None else metrics.get(metric or default)
            number = None if type_of(value) != "number" else float(value)
            checkpoint = CHECKPOINTS.record(tuple(row))
            rated.append(RatedCheckpoint(checkpoint, metrics, number, report_id))
        return rated

    def garbage(self, experiment_id: int, policy: Retention) -> list[RatedCheckpoint]:
        """The checkpoints of an experiment that its retention policy does not keep.

        They never include registered ones, warm starts, those that forks start from, and those
        that a trial would resume from.
        """
        experiment = EXPERIMENTS.find(self._connection, "id=?", experiment_id)
        if experiment is None:
            raise StoreError(f"There is no experiment {experiment_id}.")
        rated = self.rated_checkpoints(CheckpointFilter(experiment_id, states=["COMPLETED"]))
        candidates = [
            Candidate(
                r.checkpoint.uuid,
                r.checkpoint.trial_id,
                r.checkpoint.steps_completed,
                r.value,
                r.validated or 0,
                saved,
                not r.checkpoint.metadata.get("not_exact"),
            )
            for saved, r in enumerate(rated)
        ]
        stays = kept(candidates, policy, experiment.smaller_is_better)
        stays |= self._protected(experiment_id)
        return [r for r in rated if r.checkpoint.uuid not in stays]

    def _protected(self, experiment_id: int) -> frozenset[str]:
        terminal = ",".join("?" * len(TERMINAL_STATES))
        rows = self._connection.execute(
            "SELECT v.checkpoint_uuid FROM model_version v UNION "
            "SELECT f.checkpoint_uuid FROM fork f UNION "
            "SELECT t.warm_start_checkpoint FROM trial t WHERE t.warm_start_checkpoint IS NOT NULL "
            "UNION SELECT (SELECT c.uuid FROM checkpoint c WHERE c.trial_id=t.id "
            f"AND c.state='COMPLETED' AND {is_exact('c')} "
            "ORDER BY c.steps_completed DESC, c.report_time DESC LIMIT 1) "
            f"FROM trial t WHERE t.experiment_id=? AND t.state NOT IN ({terminal})",
            (experiment_id, *TERMINAL_STATES),
        )
        return frozenset(uuid for (uuid,) in rows if uuid is not None)

    def deletion(self, uuid: str) -> Deletion | None:
        """The pending deletion of a checkpoint, None if there is none."""
        return DELETIONS.find(self._connection, "uuid=?", uuid)

    def is_deleting(self, experiment_id: int) -> bool:
        """Whether an experiment has pending deletions of checkpoint files."""
        query = (
            "SELECT 1 FROM deletion d JOIN checkpoint c ON c.uuid=d.uuid "
            "WHERE c.experiment_id=? AND d.failure='' LIMIT 1"
        )
        return self._connection.execute(query, (experiment_id,)).fetchone() is not None

    def tasks_using(self, what: str, identifier: str) -> list[int]:
        """The trials that said they use a `checkpoint` or `model_version`."""
        rows = self._connection.execute(
            "SELECT trial_id FROM task_using WHERE what=? AND identifier=? ORDER BY trial_id",
            (what, identifier),
        )
        return [trial_id for (trial_id,) in rows]
