"""`det trial replay` and `det trial diff`."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import click

from determined._os.printable import printable as harmless
from determined.cli._commands.errors import OK
from determined.cli._commands.group import Command
from determined.cli._commands.options import TRIAL_ID
from determined.cli._commands.platform import platform
from determined.cli._present.layout import printable
from determined.cli._present.tables import show_json

_FAILED = 1


class _Batches(click.ParamType):  # type: ignore[type-arg]  # not generic in click 8.1
    name = "A:B"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if isinstance(value, tuple):
            return value
        found = re.fullmatch(r"(\d{1,15}):(\d{1,15})", value)
        if found is None:
            self.fail(f"expected A:B, such as 7900:8100, got {value!r}.", param, ctx)
        return int(found[1]), int(found[2])


@click.command("replay", cls=Command)
@click.argument("trial_id", type=TRIAL_ID, metavar="ID")
@click.option("--batches", type=_Batches(), required=True, help="From batch A to B, from 1 on.")
@click.option(
    "--with",
    "callbacks",
    multiple=True,
    metavar="MODULE:CLASS",
    help="A callback that sees the batches; looked up in this folder as well.",
)
@click.option("--report", is_flag=True, help="Keep what is reported, in the group `replay`.")
@click.option("--pdb", is_flag=True, help="Stop in the debugger before batch A.")
@click.option(
    "--processes",
    type=click.IntRange(1),
    default=1,
    help="Cut the span at checkpoints, and train so many parts at once.",
)
def replay_command(
    trial_id: int,
    batches: tuple[int, int],
    callbacks: tuple[str, ...],
    report: bool,
    pdb: bool,
    processes: int,
) -> int:
    """Train batches of a trial again, exactly, and look.

    Runs in this terminal, from the newest checkpoint before batch A, with the trial's code,
    hyperparameters, environment and data. Ends with "identical through batch N", or with the first
    row or tensor that is not as recorded (exit code 1). The experiment does not change.
    """
    if pdb and processes > 1:
        raise click.UsageError("--pdb cannot be combined with --processes.")
    from determined.platform.debugging.replay import Replays

    with platform(wake=False) as service, tempfile.TemporaryDirectory(prefix="det-replay-") as name:
        record = service.trial(trial_id)
        experiment = service.experiment(record.experiment_id)
        replays = Replays(service.reader, service.home, record, experiment)
        intervals = replays.plan(*batches, processes)
        for interval in intervals:
            click.echo(printable(f"Replaying {interval} of trial {trial_id}."), err=True)
        replayed = replays.run(
            intervals,
            Path(name),
            callbacks=callbacks,
            paths=[str(Path.cwd())],
            pdb=pdb,
            processes=processes,
        )
        if report:
            number = replays.publish(replayed, intervals)
            click.echo(f"Kept {len(replayed.rows)} rows as replay {number}.", err=True)
        click.echo(harmless(str(replayed), keep="\n"))
        return OK if replayed.checked.departure is None else _FAILED


@click.command("diff", cls=Command)
@click.argument("first", type=TRIAL_ID, metavar="A")
@click.argument("second", type=TRIAL_ID, metavar="B")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def diff_command(first: int, second: int, as_json: bool) -> int:
    """Find where two trials part: batch, stage, tensor and size of the first difference.

    First on paper: configuration, code, packages, environment, data. Then by the recorded hashes of
    their checkpoints. Then both are trained again, batch by batch, from the last checkpoint at
    which they were equal. Exit code 0: identical, 1: not.
    """
    from determined.platform.debugging.diff import diff_trials

    with platform(wake=False) as service, tempfile.TemporaryDirectory(prefix="det-diff-") as name:
        pairs = []
        for trial_id in (first, second):
            record = service.trial(trial_id)
            pairs.append((record, service.experiment(record.experiment_id)))
        found = diff_trials(service.reader, service.home, pairs[0], pairs[1], Path(name))
        if as_json:
            show_json(found.as_json())
        else:
            click.echo(harmless(str(found), keep="\n"))
        return OK if found.is_identical else _FAILED
