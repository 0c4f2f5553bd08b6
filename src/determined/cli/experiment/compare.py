"""`det experiment compare`: trials side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from determined.cli._commands.options import (
    COUNT,
    EXPERIMENT_IDS,
    TEXT,
    TRIAL_ID,
    Ids,
    smaller_option,
)
from determined.cli._commands.platform import platform
from determined.cli._present.tables import Output, output_options, show
from determined.cli.experiment.listing import shown_state
from determined.cli.experiment.noun import experiment
from determined.cli.experiment.repeats import cell, show_repeated, show_significance

if TYPE_CHECKING:
    from determined.platform.queries.comparison import Compared
    from determined.platform.service import Service
    from determined.store import Trial


@experiment.verb("compare")
@click.argument("experiments", type=EXPERIMENT_IDS, metavar="ID[,ID...]", nargs=-1, required=True)
@click.option(
    "--trials", "trial_ids", type=Ids(TRIAL_ID), metavar="ID[,ID...]", help="Only these trials."
)
@click.option("--top", type=COUNT, metavar="N", help="Only the N best.")
@click.option("--metric", type=TEXT, help="The validation metric; default: the one of the search.")
@smaller_option
@click.option("--all", "show_all", is_flag=True, help="Include hyperparameters that do not differ.")
@click.option(
    "--significance",
    is_flag=True,
    help="Whether configurations differ by more than their seeds do; with `repeat`.",
)
@click.option("--seeds", "each_seed", is_flag=True, help="With `repeat`: a line for each seed.")
@output_options
def compare(
    experiments: tuple[list[int], ...],
    trial_ids: list[int] | None,
    top: int | None,
    metric: str | None,
    smaller_is_better: bool | None,
    show_all: bool,
    significance: bool,
    each_seed: bool,
    output: Output,
) -> None:
    """Show trials side by side, best first: the hyperparameters that differ, and the results.

    With several experiments, the trials of all of them. Trials that `repeat` trained with other
    seeds are one line: the mean of their best values, and the standard deviation.

    With --significance, two configurations are compared, or the best one with all others: on the
    seeds that they share, if they do, with an interval of the difference.
    """
    from determined.platform.queries.comparison import compare as compare_trials
    from determined.platform.queries.seeds.repeats import is_repeated
    from determined.store import TrialFilter

    experiment_ids = list(dict.fromkeys(number for given in experiments for number in given))
    if significance and each_seed:
        raise click.UsageError("Give --significance or --seeds, not both.")
    if significance and top is not None:
        raise click.UsageError("--significance compares all of them: leave out --top.")

    with platform() as service:
        found = [service.experiment(number) for number in experiment_ids]
        trials: list[Trial] = []
        for record in found:
            trials += service.reader.trials(TrialFilter(experiment_id=record.id)).rows
        if trial_ids is not None:
            known = {trial.id: trial for trial in trials}
            if unknown := [number for number in trial_ids if number not in known]:
                raise click.UsageError(f"Trial {unknown[0]} does not belong to these experiments.")
            trials = [known[number] for number in trial_ids]
        seen = compare_trials(service.reader, found, trials, metric, smaller_is_better)
        if metric is not None and trials and all(row.best is None for row in seen.rows):
            raise click.ClickException(_no_such_metric(service, metric, experiment_ids))
        running = {run.trial_id for run in service.reader.unfinished_runs()}
    if significance:
        show_significance(seen, experiment_ids, output)
        return
    if any(map(is_repeated, found)) and not each_seed and trial_ids is None:
        show_repeated(seen, len(found) > 1, top, output, show_all=show_all)
        return
    names = sorted({n for row in seen.rows for n in row.hparams}) if show_all else seen.differing
    rows = [
        [
            *([row.trial.experiment_id] if len(found) > 1 else []),
            row.trial.id,
            shown_state(row.trial.state, row.trial.id in running),
            *(cell(row.hparams[name]) if name in row.hparams else None for name in names),
            row.best,
            row.best_steps,
            row.trial.total_batches,
        ]
        for row in seen.rows[:top]
    ]
    headers = [*(["Experiment ID"] if len(found) > 1 else []), "Trial ID", "State", *names]
    headers += [f"Best {seen.metric}".rstrip(), "At Batch", "# of Batches"]
    data = [_json(row, seen.metric) for row in seen.rows[:top]]
    spare = ("# of Batches", "At Batch", *reversed(names))
    show(headers, rows, output, data, in_full=len(rows) == 1, spare=spare)
    if output == "table" and not show_all and len(seen.rows) > 1 and not seen.differing:
        click.echo("Their hyperparameters are the same.")


def _no_such_metric(service: Service, metric: str, experiment_ids: list[int]) -> str:
    names = {
        name
        for number in experiment_ids
        for group, name in service.reader.metrics.names(number)
        if group == "validation"
    }
    known = f"they have {', '.join(sorted(names))}" if names else "none was reported"
    return f"No validation of these trials has the metric {metric!r}: {known}."


def _json(row: Compared, metric: str) -> dict[str, Any]:
    return {
        "experiment_id": row.trial.experiment_id,
        "trial_id": row.trial.id,
        "state": row.trial.state,
        "hparams": row.hparams,
        "metric": metric,
        "best_validation": row.best,
        "best_validation_steps": row.best_steps,
        "total_batches": row.trial.total_batches,
    }
