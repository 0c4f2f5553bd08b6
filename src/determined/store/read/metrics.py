"""Queries on metrics: reports, summaries, curves, the profiler's samples."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from determined.journal import BatchColumns
from determined.store._forks import Span, spans
from determined.store._records import SAMPLES, Report, Samples
from determined.store.read.changes import NewPoints, new_points
from determined.store.read.connections import Queries
from determined.store.read.pages import Where
from determined.store.series.summary import Summary
from determined.store.write.trial_tally import read_summaries

if TYPE_CHECKING:
    from determined.store.series.curves import Curve, CurveKey

_SUMMARY_KEYS = {"training": "avg_metrics", "validation": "validation_metrics"}
_PAGE = 1000
_REPORT_COLUMNS = "id, trial_id, run_id, grp, steps, time, metrics, batches, archived"


class MetricQueries(Queries):
    """What trials reported."""

    def reports(
        self, trial_id: int, group: str | None = None, *, archived: bool = False
    ) -> Iterator[Report]:
        """Yield reports by step; with `archived`, also those that were rolled back.

        Those of a fork begin with its parent's. Reports are read page by page: a statement left
        open would keep this thread from seeing anything newer, such as the answer to a command.
        """
        for span in spans(self._connection, trial_id):
            yield from self._iter_span(span, group, archived)

    def _iter_span(self, span: Span, group: str | None, archived: bool) -> Iterator[Report]:
        key = "steps, run_id" if group is not None else "id"
        last: tuple[int, ...] = ()
        while True:
            where = Where()
            where.equal("trial_id", span.trial_id)
            where.equal("grp", group)
            if span.after > -math.inf:
                where.add("steps>?", span.after)
            if span.upto < math.inf:
                where.add("steps<=?", span.upto)
            if not archived:
                where.add("archived=0")
            if last:
                where.add(f"({key}) > ({','.join('?' * len(last))})", *last)
            sql = f"SELECT {_REPORT_COLUMNS} FROM report {where} ORDER BY {key} LIMIT {_PAGE}"
            rows = self._connection.execute(sql, where.parameters).fetchall()
            page = [_report(row) for row in rows]
            yield from page
            if len(page) < _PAGE:
                return
            end = page[-1]
            last = (end.id,) if group is None else (end.steps_completed, end.run_id)

    def reports_since(
        self, trial_ids: Sequence[int], after: int, limit: int = 1000
    ) -> list[Report]:
        """Reports that were read after the one with the id `after`, for live updates."""
        where = Where()
        where.among("trial_id", trial_ids)
        where.add("id>? AND archived=0", after)
        sql = f"SELECT {_REPORT_COLUMNS} FROM report {where} ORDER BY id LIMIT ?"
        return [_report(row) for row in self._connection.execute(sql, [*where.parameters, limit])]

    def last_report_id(self) -> int:
        """The id of the report that was read last."""
        row = self._connection.execute("SELECT coalesce(max(id), 0) FROM report").fetchone()
        return int(row[0])

    def summaries(self, trial_id: int) -> dict[str, dict[str, Summary]]:
        """Summaries by group (`avg_metrics`, `validation_metrics`, other names) and metric."""
        groups: dict[str, dict[str, Summary]] = {}
        for (group, name), summary in read_summaries(self._connection, trial_id).items():
            groups.setdefault(_SUMMARY_KEYS.get(group, group), {})[name] = summary
        return groups

    def names(self, experiment_id: int) -> list[tuple[str, str]]:
        """The groups and names of all metrics reported by an experiment's trials."""
        rows = self._connection.execute(
            "SELECT DISTINCT s.grp, s.name FROM trial t JOIN summary s ON s.trial_id=t.id "
            "WHERE t.experiment_id=? ORDER BY 1, 2",
            (experiment_id,),
        )
        return rows.fetchall()

    def curves(
        self,
        keys: Sequence[CurveKey],
        x: str | tuple[str, str] = "steps",
        low: float | None = None,
        high: float | None = None,
        pixels: int = 2000,
    ) -> list[Curve]:
        """Curves for a chart of `pixels` columns; points that were rolled back are left out.

        Args:
            keys: which metrics of which trials.
            x: `steps`, `time`, `relative` (seconds since the trial started), or the name of a
                metric of the same group, such as `epochs`, or the group and name of any metric.
            low: the smallest x to include.
            high: the largest x to include.
            pixels: about how many buckets to return; if there are fewer points, they are exact.
        """
        from determined.store.series.curves import read_curve

        return [read_curve(self._connection, key, x, low, high, pixels) for key in keys]

    def new_points(
        self, keys: Sequence[CurveKey], after: int, limit: int = 2000
    ) -> tuple[dict[CurveKey, NewPoints], int]:
        """The new points of curves after a report, and the last report that they include."""
        return new_points(self._connection, keys, after, limit)

    def samples(self, trial_id: int, group: str, since: float = 0.0) -> list[Samples]:
        """What the profiler reported."""
        where = "WHERE trial_id=? AND grp=? AND time>? ORDER BY time"
        return SAMPLES.select(self._connection, where, trial_id, group, since)


def _report(row: tuple[Any, ...]) -> Report:
    report_id, trial_id, run_id, group, steps, time, metrics, batches, archived = row
    columns = None if batches is None else BatchColumns.from_bytes(batches).to_dicts()
    values = json.loads(metrics)
    return Report(report_id, trial_id, run_id, group, steps, time, values, columns, bool(archived))
