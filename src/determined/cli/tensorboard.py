"""`det tensorboard`: stored trials in the TensorBoard that is installed."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from determined.cli._commands.absent import absent
from determined.cli._commands.errors import OK
from determined.cli._commands.group import Group
from determined.cli._commands.options import EXPERIMENT_ID, TRIAL_ID, Ids, without_effect
from determined.cli._commands.platform import platform

if TYPE_CHECKING:
    from determined.platform.tensorboards.server import TensorBoardServer

_USUAL_PORT = 6006


@click.group(cls=Group)
def tensorboard() -> None:
    """Show trials in TensorBoard."""


@tensorboard.verb("start")
@click.argument("experiment_ids", nargs=-1, type=EXPERIMENT_ID, metavar="[EXPERIMENT_ID]...")
@click.option(
    "-t",
    "--trial-ids",
    "trial_ids",
    multiple=True,
    type=Ids(TRIAL_ID),
    metavar="ID[,ID...]",
    help="Additional trials, besides those of experiments.",
)
@click.option("--host", default="localhost", show_default=True, help="The name to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help=f"The port to listen on; default: {_USUAL_PORT}, or a free one.",
)
@click.option("--no-browser", is_flag=True, help="Do not open a browser.")
@without_effect(
    "TensorBoard runs on this machine as it is installed",
    "--config-file",
    "--config",
    "-c/--context",
    "-i/--include",
)
@click.option(
    "-d", "--detach", is_flag=True, help="Not supported: append `&` to the command instead."
)
def start(
    experiment_ids: tuple[int, ...],
    trial_ids: tuple[list[int], ...],
    host: str,
    port: int | None,
    no_browser: bool,
    detach: bool,
) -> int:
    """Show the trials of experiments in TensorBoard, until Ctrl-C.

    At most 100 trials are shown, the best ones. Running trials are updated live; trials without
    event files are shown from their recorded metrics.
    """
    from determined.platform.tensorboards.server import (
        MOST_TRIALS,
        TensorBoardServer,
        check_installed,
        trials_of,
    )

    if detach:
        raise click.UsageError(
            "--detach is not supported: TensorBoard runs in this terminal; append `&` to the "
            "command instead."
        )
    if not experiment_ids and not trial_ids:
        raise click.UsageError("Give an experiment, or trials with -t.")
    with platform() as service, _ends_on_signals():
        numbers = [number for group in trial_ids for number in group]
        trials = trials_of(service, dict.fromkeys(experiment_ids), dict.fromkeys(numbers))
        check_installed()
        if len(trials) > MOST_TRIALS:
            click.echo(f"Showing {MOST_TRIALS} of {len(trials)} trials: the best.", err=True)
        with contextlib.closing(
            TensorBoardServer(service, trials[:MOST_TRIALS], host, port)
        ) as server:
            _stay(server, no_browser)
    return OK


def _stay(server: TensorBoardServer, no_browser: bool) -> None:
    """Say where it is, until it or we are ended."""
    try:
        click.echo(f"TensorBoard is running at: {server.url}\nCtrl-C stops it.")
        if not no_browser and sys.stdout.isatty():
            click.launch(server.url_once)
        status = server.wait()
    except KeyboardInterrupt:
        click.echo("TensorBoard has ended.")
        return
    if status not in (0, -signal.SIGTERM, -signal.SIGINT):
        raise click.ClickException(f"TensorBoard ended with status {status}.")


@contextlib.contextmanager
def _ends_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end us as Ctrl-C does, so that nothing is left behind."""

    def end(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


absent(
    tensorboard,
    "TensorBoard runs in the terminal in which `det tensorboard start` was called; Ctrl-C stops "
    "it.",
    *("config", "kill", "list", "logs", "ls", "open", "set"),
)
