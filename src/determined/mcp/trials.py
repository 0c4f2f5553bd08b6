"""Tools about trials: what they did and why, their metrics, logs and checkpoints, forks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field

from determined.errors import RefusedError
from determined.mcp.answers import (
    checkpoint_row,
    filled,
    moment,
    page,
    shortened,
    trial_row,
)
from determined.mcp.experiments import Limit
from determined.platform.service import Service
from determined.store import CheckpointFilter, Curve, CurveKey, Trial, TrialFilter

_MOST_CURVES = 10
_MOST_LOG_CHARACTERS = 20_000
_LONGEST_LINE = 400

TrialId = Annotated[int, Field(ge=1, description="The id of a trial.")]
Level = Literal["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]


class TrialTools:
    """What can be asked about trials, and done with them."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @property
    def readers(self) -> tuple[Callable[..., Any], ...]:
        """Those that change nothing."""
        return (
            self.describe_trial,
            self.explain_trial,
            self.read_metrics,
            self.read_logs,
            self.list_checkpoints,
        )

    @property
    def actors(self) -> tuple[Callable[..., Any], ...]:
        """Those that change something; none of them deletes."""
        return (self.kill_trial, self.fork_trial)

    def describe_trial(self, trial_id: TrialId) -> dict[str, Any]:
        """Describe a trial: hyperparameters, a summary of each metric, runs, its origin."""
        from determined.platform.queries.lineage import lineage_of

        trial, reader = self._service.trial(trial_id), self._service.reader
        runs = reader.runs(trial_id)
        metrics: dict[str, dict[str, Any]] = {}
        for (group, name), found in reader.tables.summaries(trial_id).items():
            shown = filled(last=found.last, min=found.min, max=found.max, count=found.count)
            metrics.setdefault(group, {})[name] = shown
        return trial_row(trial, is_running=any(run.ended is None for run in runs)) | filled(
            experiment_id=trial.experiment_id,
            seed=trial.seed,
            metrics=metrics,
            runs=len(runs),
            lineage=lineage_of(reader, trial_id).lines,
            started=moment(trial.started),
            ended=moment(trial.ended),
        )

    def explain_trial(self, trial_id: TrialId) -> dict[str, Any]:
        """Say why a trial was stopped, restarted or failed: runs, decisions, traceback."""
        from determined.platform.queries.outcome import last_log_lines

        trial, reader = self._service.trial(trial_id), self._service.reader
        decisions = reader.tables.decisions_about(trial.experiment_id, trial.request_id)
        runs = [
            filled(
                run=run.run_id,
                from_batch=run.steps_completed,
                exit_code=run.exit_code,
                reason=shortened(run.reason or run.preempted),
                ended=moment(run.ended),
            )
            for run in reader.runs(trial_id)
        ]
        return filled(
            trial_id=trial_id,
            state=trial.state,
            reason=shortened(trial.reason),
            early_exit=trial.early_exit,
            decisions=[shortened(sentence) for _, sentence in decisions[-10:]],
            runs=runs[-10:],
            end_of_failed_run=[shortened(line, 300) for line in last_log_lines(reader, trial)],
        )

    def read_metrics(
        self,
        trial_id: TrialId,
        names: Annotated[
            list[str] | None, Field(description="Which metrics; default: all of the group.")
        ] = None,
        group: Annotated[
            str, Field(description="`validation`, `training` or another group.")
        ] = "validation",
        points: Annotated[
            int, Field(ge=2, le=500, description="About how many points per metric.")
        ] = 20,
    ) -> dict[str, Any]:
        """Read metrics of a trial as short series: `[batches, value]`, or buckets of many."""
        trial, reader = self._service.trial(trial_id), self._service.reader
        known = [name for own, name in reader.tables.summaries(trial_id) if own == group]
        if unknown := [name for name in names or () if name not in known]:
            has = f"it has {', '.join(sorted(known))}" if known else "it has none"
            raise RefusedError(
                f"Trial {trial.id} has no {group} metric {unknown[0]!r}: {shortened(has)}."
            )
        chosen = names or sorted(known)
        keys = [CurveKey(trial_id, group, name) for name in chosen[:_MOST_CURVES]]
        curves = reader.metrics.curves(keys, "steps", pixels=points)
        left_out = chosen[_MOST_CURVES:]
        return {"series": {c.key.name: _series(c) for c in curves}} | filled(left_out=left_out)

    def read_logs(
        self,
        trial_id: Annotated[int | None, Field(description="Of this trial.")] = None,
        experiment_id: Annotated[int | None, Field(description="Of all its trials.")] = None,
        tail: Annotated[int, Field(ge=1, le=1000, description="How many lines at the end.")] = 50,
        search: Annotated[
            str | None, Field(description="Only lines that match this regular expression.")
        ] = None,
        level: Annotated[
            Level | None, Field(description="Only lines of this level or above.")
        ] = None,
    ) -> dict[str, Any]:
        """Read the end of a log, of the lines that match."""
        from determined.platform.queries.logs import LogFilter, tail_logs

        trials = self._trials(trial_id, experiment_id)
        try:
            pattern = None if search is None else re.compile(search)
        except re.error as error:
            raise RefusedError(
                f"`search`: {search!r} is not a regular expression: {error}."
            ) from None
        runs = [run for trial in trials for run in self._service.reader.runs(trial.id)]
        found = tail_logs(runs, LogFilter(level=level, search=pattern), tail)
        lines: list[str] = []
        room = _MOST_LOG_CHARACTERS
        for entry in reversed(found):
            prefix = f"[trial {entry.trial_id}] " if len(trials) > 1 else ""
            line = prefix + shortened(entry.line.text, _LONGEST_LINE)
            room -= len(line)
            if room < 0:
                break
            lines.append(line)
        return {"lines": lines[::-1]} | filled(shortened=len(lines) < len(found) or None)

    def list_checkpoints(
        self,
        experiment_id: Annotated[int | None, Field(description="Of all its trials.")] = None,
        trial_id: Annotated[int | None, Field(description="Of this trial.")] = None,
        limit: Limit = 10,
    ) -> dict[str, Any]:
        """List the complete checkpoints of an experiment or a trial, the best first."""
        from determined.platform.queries.outcome import best_first, folder_of

        trials = self._trials(trial_id, experiment_id)
        owner = experiment_id if experiment_id is not None else trials[0].experiment_id
        record = self._service.experiment(owner)
        only = CheckpointFilter(experiment_id, trial_id, states=["COMPLETED"])
        rated = best_first(self._service.reader.rated_checkpoints(only), record.smaller_is_better)
        rows = [
            checkpoint_row(item.checkpoint, item.value, folder_of(item.checkpoint, record))
            for item in rated[: limit + 1]
        ]
        head = filled(metric=record.searcher_metric)
        return head | {"checkpoints": []} | page(rows, limit, "checkpoints")

    def kill_trial(self, trial_id: TrialId) -> dict[str, Any]:
        """End one trial at once, without a last checkpoint; the search goes on."""
        self._service.kill_trial(trial_id)
        trial = self._service.trial(trial_id)
        return filled(trial_id=trial_id, state=trial.state, reason=trial.reason)

    def fork_trial(
        self,
        trial_id: TrialId,
        at: Annotated[int, Field(ge=1, description="The batches that both share.")],
        hparams: Annotated[
            dict[str, Any] | None,
            Field(description="Hyperparameters that change there; nested ones by dotted names."),
        ] = None,
        max_length: Annotated[
            int | None, Field(ge=1, description="Train this long; default: as before.")
        ] = None,
        seed: Annotated[int | None, Field(description="Other random numbers from there.")] = None,
        name: Annotated[str | None, Field(description="The new experiment's name.")] = None,
    ) -> dict[str, Any]:
        """Train a trial again from a batch on, with other hyperparameters, as a new experiment."""
        from determined.platform.service.forking import Forks

        forks = Forks(self._service)
        start = forks.plan(trial_id, at)
        number = forks.create(
            trial_id, at, hparams or {}, name=name, max_length=max_length, seed=seed
        )
        return {"experiment_id": number, "start": str(start)}

    def _trials(self, trial_id: int | None, experiment_id: int | None) -> list[Trial]:
        if (trial_id is None) == (experiment_id is None):
            raise RefusedError("Give one of `trial_id` and `experiment_id`.")
        if trial_id is not None:
            return [self._service.trial(trial_id)]
        assert experiment_id is not None
        self._service.experiment(experiment_id)
        return list(self._service.reader.trials(TrialFilter(experiment_id=experiment_id)).rows)


def _series(curve: Curve) -> dict[str, Any]:
    if curve.is_exact:
        values = zip(curve.x.tolist(), curve.lasts.tolist(), strict=True)
        return {"points": [[_whole(x), y] for x, y in values]}
    columns = (curve.x_last, curve.means, curve.mins, curve.maxs)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return {
        "num_points": curve.num_points,
        "columns": ["up_to_batch", "mean", "min", "max"],
        "buckets": [[_whole(x), *rest] for x, *rest in rows],
    }


def _whole(number: float) -> float | int:
    return int(number) if float(number).is_integer() else number
