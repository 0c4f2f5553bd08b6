"""What `det trial describe` shows."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from determined.cli._present.layout import number_text, printable
from determined.cli._present.records import mention_others, validated_or_saved
from determined.cli._present.tables import (
    Output,
    brief,
    duration_text,
    hparams_text,
    iso_time,
    show,
    show_json,
    time_text,
)

if TYPE_CHECKING:
    from determined.platform.queries.lineage import Lineage
    from determined.platform.queries.run_environments import RunEnvironment
    from determined.platform.queries.workloads import Workload
    from determined.platform.service import Service
    from determined.store import Run, Summary, Trial

_COUNTERS = ("batches", "epochs")  # they are in every report
_STATISTICS = ("count", "last", "min", "max", "mean")


@dataclasses.dataclass(frozen=True)
class TrialDescription:
    """A trial with all that belongs to it."""

    service: Service
    trial: Trial
    state: str
    summary: dict[str, dict[str, Summary]]
    runs: list[Run]
    environments: list[RunEnvironment]
    decisions: list[tuple[float, str]]
    steps: list[Workload]
    with_batches: bool
    batches: dict[int, list[dict[str, Any]]]
    lineage: Lineage

    @classmethod
    def of(cls, service: Service, trial: Trial, *, with_batches: bool) -> TrialDescription:
        """Read it from the store."""
        from determined.cli.experiment.listing import shown_state
        from determined.platform.queries.lineage import lineage_of
        from determined.platform.queries.run_environments import environments_of
        from determined.platform.queries.workloads import workloads

        reader = service.reader
        runs = reader.runs(trial.id)
        batches = {}
        if with_batches:
            batches = {
                report.steps_completed: report.batch_metrics
                for report in reader.metrics.reports(trial.id, "training")
                if report.batch_metrics
            }
        return cls(
            service,
            trial,
            shown_state(trial.state, any(run.ended is None for run in runs)),
            reader.metrics.summaries(trial.id),
            runs,
            environments_of(reader, trial.id),
            reader.tables.decisions_about(trial.experiment_id, trial.request_id),
            workloads(reader, trial.id),
            with_batches,
            batches,
            lineage_of(reader, trial.id),
        )

    def show(self, steps: Sequence[Workload], output: Output, utc: bool) -> None:
        """Print tables, or the same as CSV."""
        if output == "table":
            self._show_for_people(steps, utc)
            return
        trial = self.trial
        headers = ["Experiment ID", "State", "H-Params", "Summary Metrics", "Started", "Ended"]
        last = {g: {name: s.last for name, s in m.items()} for g, m in self.summary.items()}
        times = [time_text(moment, utc=utc) for moment in (trial.started, trial.ended)]
        row = [trial.experiment_id, self.state, hparams_text(trial.hparams), hparams_text(last)]
        show(headers, [[*row, *times]], output)
        show(*self._workloads(steps, utc), output)

    def _show_for_people(self, steps: Sequence[Workload], utc: bool) -> None:
        from determined.cli._present.following import show_failure

        self._show_answer(utc)
        if self.trial.state == "ERROR":
            show_failure(self.service, self.trial)
        self._show_story(utc)
        chosen = steps if self.with_batches else validated_or_saved(steps)
        if chosen:
            click.echo("\nWorkloads:")
            spare = ("Checkpoint Metadata", "Report Time", "Checkpoint UUID")
            show(*self._workloads(chosen, utc, _measured), spare=spare)
        mention_others(len(steps) - len(chosen))

    def _show_answer(self, utc: bool) -> None:
        """How far the trial got, its best result and where that is."""
        from determined.cli._present.following import say_state
        from determined.platform.queries.outcome import best_first
        from determined.store import CheckpointFilter

        trial, reader = self.trial, self.service.reader
        owner = self.service.experiment(trial.experiment_id)
        reason = f": {printable(trial.reason)}" if trial.reason else "."
        say_state(f"Trial {trial.id} of experiment {owner.id}", self.state, reason)
        if trial.best_validation is not None:
            best = f"{owner.searcher_metric} {number_text(trial.best_validation, 6)}"
            click.echo(
                f"Best:       {printable(best)}, after {trial.best_validation_steps} batches"
            )
        took = duration_text(trial.started, trial.ended, time.time())
        click.echo(f"Trained:    {trial.total_batches} batches in {took or '0s'}")
        if trial.started is not None:
            click.echo(f"Started:    {time_text(trial.started, utc=utc)}")
        kept = CheckpointFilter(trial_id=trial.id, states=["COMPLETED"])
        ranked = best_first(reader.rated_checkpoints(kept), owner.smaller_is_better)
        if ranked:
            found = ranked[0].checkpoint
            click.echo(f"Checkpoint: {found.uuid} (after {found.steps_completed} batches)")

    def _show_story(self, utc: bool) -> None:
        """The history of the trial: hyperparameters, metrics, runs, decisions."""
        from determined.config import masked_hparams

        trial = self.trial
        if self.lineage.lines:
            click.echo("\nLineage:")
            for line in self.lineage.lines:
                click.echo(f"  {printable(line)}")
        if trial.hparams:
            click.echo("\nHyperparameters:")
            for name, value in sorted(masked_hparams(trial.hparams).items()):
                click.echo(f"  {printable(name)}: {printable(hparams_text(value))}")
        if self.summary:
            click.echo("\nMetrics:")
            self.show_summary("table")
        if self.runs:
            click.echo("\nRuns:")
            show(*self._runs(utc), in_full=True)
        if self.environments:
            click.echo("\nEnvironment:")
            for one in self.environments:
                click.echo(f"  run {one.run_id}: {printable(one.text)}")
                for text in one.differences:
                    click.echo(f"    not as before: {printable(text)}")
        if self.decisions:
            click.echo("\nDecisions of the search:")
            for moment, sentence in self.decisions:
                click.echo(f"  {time_text(moment, utc=utc)}  {printable(sentence)}")

    def show_summary(self, output: Output) -> None:
        """Print one row per metric."""
        rows = [
            [group, name, *(getattr(summary, statistic) for statistic in _STATISTICS)]
            for group, metrics in self.summary.items()
            for name, summary in metrics.items()
        ]
        show(["Group", "Metric", *(s.capitalize() for s in _STATISTICS)], rows, output)

    def show_json(self, steps: Sequence[Workload]) -> None:
        """Print everything as JSON."""
        from determined.cli._present.original_json import trial_additions, workload_containers
        from determined.cli._present.records import record_json
        from determined.cli.experiment.listing import trial_json

        show_json(
            {
                **trial_json(self.trial),
                **trial_additions(self.trial),
                "summary_metrics": {
                    group: {
                        name: {**dataclasses.asdict(summary), "mean": summary.mean}
                        for name, summary in metrics.items()
                    }
                    for group, metrics in self.summary.items()
                },
                "lineage": dataclasses.asdict(self.lineage),
                "runs": [record_json(run) for run in self.runs],
                "environments": [dataclasses.asdict(one) for one in self.environments],
                "decisions": [
                    {"time": iso_time(moment), "sentence": sentence}
                    for moment, sentence in self.decisions
                ],
                "workloads": workload_containers(steps, self.batches),
            }
        )

    def _runs(self, utc: bool) -> tuple[list[str], list[list[object]]]:
        headers = ["Run", "Started", "Ended", "From Batch", "Slots", "Exit Code", "Reason"]
        return headers, [
            [
                run.run_id,
                time_text(run.started or run.created, utc=utc),
                time_text(run.ended, utc=utc),
                run.steps_completed,
                ", ".join(map(str, run.slots)),
                run.exit_code,
                run.reason or run.preempted,
            ]
            for run in self.runs
        ]

    def _workloads(
        self,
        steps: Sequence[Workload],
        utc: bool,
        text: Callable[[dict[str, Any]], str] = hparams_text,
    ) -> tuple[list[str], list[list[object]]]:
        headers = ["# of Batches", "Report Time", "Checkpoint", "Checkpoint UUID"]
        headers += ["Checkpoint Metadata", "Validation Metrics"]
        rows: list[list[object]] = []
        for step in steps:
            checkpoint = step.checkpoint
            row: list[object] = [step.steps_completed, time_text(step.time, utc=utc)]
            row += ["", "", ""]
            if checkpoint is not None:
                row[2:] = [checkpoint.state, checkpoint.uuid, hparams_text(checkpoint.metadata)]
            row.append(text(step.validation) if step.validation_time is not None else "")
            if self.with_batches:
                row.append(hparams_text(self.batches.get(step.steps_completed) or step.training))
            rows.append(row)
        return ([*headers, "Workload Metrics"] if self.with_batches else headers), rows


def _measured(metrics: dict[str, Any]) -> str:
    return brief({name: value for name, value in metrics.items() if name not in _COUNTERS})
