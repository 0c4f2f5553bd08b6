"""Configurations that were trained with several seeds: one line each, and their significance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from determined.cli._present.layout import printable
from determined.cli._present.tables import Output, hparams_text, show, show_json

if TYPE_CHECKING:
    from determined.platform.queries.comparison import Comparison


def show_repeated(
    seen: Comparison,
    with_experiment: bool,
    top: int | None,
    output: Output,
    *,
    show_all: bool = False,
) -> None:
    """Print one line for each configuration, the best mean first."""
    from determined.platform.queries.seeds.repeats import group_json, repeated

    groups = repeated(seen)[:top]
    names = seen.differing
    if show_all:
        names = sorted({name for group in groups for name in group.hparams})
    headers = [*(["Experiment ID"] if with_experiment else []), *names, "Seeds", "Trial IDs"]
    headers += [f"Mean best {seen.metric}".rstrip(), "±"]
    rows = [
        [
            *([group.experiment_id] if with_experiment else []),
            *(cell(group.hparams[name]) if name in group.hparams else None for name in names),
            f"{len(group.results)}/{len(group.rows)}",
            ", ".join(map(str, group.trial_ids)),
            group.mean,
            group.spread,
        ]
        for group in groups
    ]
    data = [group_json(group, seen.metric) for group in groups]
    show(headers, rows, output, data, in_full=len(rows) == 1)
    if output == "table":
        click.echo("Mean and standard deviation over seeds; --seeds shows each trial.")


def show_significance(seen: Comparison, experiment_ids: list[int], output: Output) -> None:
    """Say whether configurations differ by more than their seeds do."""
    from determined.platform.queries.seeds.repeats import judge_all, judgement_json

    try:
        found = judge_all(seen, experiment_ids)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    if output == "json":
        show_json(judgement_json(seen, found))
        return
    groups, names, judged = found.groups, found.names, found.judged
    headers = ["Configuration", "Seeds", f"Mean best {seen.metric}".rstrip(), "±"]
    headers += ["Difference", "Low", "High", "Verdict"]
    of_others = {id(one.b): one.verdict for one in judged}
    rows = []
    for group, name in zip(groups, names, strict=True):
        verdict = of_others.get(id(group))
        row: list[object] = [name, f"{len(group.results)}/{len(group.rows)}"]
        row += [group.mean, group.spread]
        if verdict is None:
            row += [None, None, None, ""]
        else:
            short = {"a": "worse", "b": "better"}.get(verdict.winner or "", "within noise")
            short = "too few seeds" if verdict.method == "none" else short
            row += [verdict.difference, verdict.low, verdict.high, short]
        rows.append(row)
    show(headers, rows, output)
    if output == "csv":
        return
    for one in judged:
        prefix = "" if len(judged) == 1 else f"{names[0]}, {names[groups.index(one.b)]}: "
        sentence = one.verdict.sentence
        click.echo(printable(prefix + sentence if prefix else sentence[:1].upper() + sentence[1:]))
    if len(judged) > 1:
        pairs = len(groups) * (len(groups) - 1) // 2
        click.echo(f"The error of 5 % is shared among all {pairs} pairs of configurations.")
    for line in found.notes:
        click.echo(printable(line))


def cell(value: Any) -> Any:
    """A hyperparameter in a table."""
    is_plain = isinstance(value, (int, float, str)) and not isinstance(value, bool)
    return value if is_plain else printable(hparams_text(value))
