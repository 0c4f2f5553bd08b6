"""`det tensorboard`: stored trials in the TensorBoard that is installed."""

from __future__ import annotations

import contextlib
import importlib.util
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from determined.cli._absent import absent
from determined.cli._door import platform
from determined.cli._errors import OK
from determined.cli._group import Group
from determined.cli._options import EXPERIMENT_ID, TRIAL_ID, Ids

if TYPE_CHECKING:
    from determined.platform.service import Service
    from determined.store import Trial

_MOST_TRIALS = 100
_USUAL_PORT = 6006
_START_SECONDS = 120.0
_END_SECONDS = 10.0


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
@click.option("-d", "--detach", is_flag=True, hidden=True)
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
    import tempfile

    from determined.platform.event_files import gather

    if detach:
        raise click.UsageError("--detach: it runs in this terminal; end the line with `&` instead.")
    if not experiment_ids and not trial_ids:
        raise click.UsageError("Name an experiment, or trials with -t.")
    with platform() as service, tempfile.TemporaryDirectory(prefix="det-tensorboard-") as folder:
        numbers = [number for group in trial_ids for number in group]
        trials = _trials(service, dict.fromkeys(experiment_ids), dict.fromkeys(numbers))
        _check_installed()
        gather(service.home, service.reader, trials, Path(folder))
        with _server(folder, host, _free_port(host, port)) as (server, url):
            click.echo(f"TensorBoard is running at: {url}\nCtrl-C ends it.")
            if not no_browser and sys.stdout.isatty():
                click.launch(url)
            server.wait()
            if server.returncode not in (0, -signal.SIGTERM, -signal.SIGINT):
                raise click.ClickException(f"TensorBoard ended with status {server.returncode}.")
    return OK


def _trials(service: Service, experiment_ids: Any, trial_ids: Any) -> list[Trial]:
    """The trials to show: those named, then the best of the experiments."""
    from determined.platform.comparison import compare
    from determined.store import TrialFilter

    found = {number: service.trial(number) for number in trial_ids}
    for number in experiment_ids:
        record = service.experiment(number)
        own = service.reader.trials(TrialFilter(experiment_id=number)).rows
        for row in compare(service.reader, [record], own).rows:
            found.setdefault(row.trial.id, row.trial)
    if not found:
        raise click.ClickException("These experiments have no trials yet.")
    if len(found) > _MOST_TRIALS:
        click.echo(f"Showing {_MOST_TRIALS} of {len(found)} trials: the best.", err=True)
    return list(found.values())[:_MOST_TRIALS]


def _check_installed() -> None:
    if importlib.util.find_spec("tensorboard") is None:
        raise click.ClickException("TensorBoard is not installed: `pip install tensorboard`.")


def _free_port(host: str, wanted: int | None) -> int:
    """The port to use; one that is taken is an error only if it was asked for."""
    for port in [_USUAL_PORT, 0] if wanted is None else [wanted]:
        with contextlib.closing(socket.socket()) as probe:
            try:
                probe.bind((host, port))
                return int(probe.getsockname()[1])
            except socket.gaierror as error:
                raise click.ClickException(f"--host {host}: {error.strerror}.") from None
            except UnicodeError:
                raise click.ClickException(f"--host {host!r} is no name of a machine.") from None
            except OSError as error:
                if wanted is not None:
                    raise click.ClickException(f"--port {port}: {error.strerror}.") from None
    raise click.ClickException(f"There is no free port at {host}.")


@contextlib.contextmanager
def _server(folder: str, host: str, port: int) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A TensorBoard that answers; it is gone afterwards, however we end."""
    from determined.launch.wrap_rank import end_with_parent

    words = [sys.executable, "-m", "tensorboard.main", "--logdir", folder]
    words += ["--host", host, "--port", str(port), "--reload_interval", "5"]
    log = Path(folder, "tensorboard.log")
    with log.open("wb") as output, _ends_on_signals():
        server = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=lambda: end_with_parent(signal.SIGTERM),
        )
        try:
            _wait_until_it_answers(server, host, port, log)
            yield server, f"http://{host}:{port}/"
        except KeyboardInterrupt:
            click.echo("TensorBoard has ended.")
        finally:
            _end(server)


def _wait_until_it_answers(
    server: subprocess.Popen[bytes], host: str, port: int, log: Path
) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        with contextlib.suppress(OSError), socket.create_connection((host, port), 1.0):
            return
        if server.poll() is not None or time.monotonic() > deadline:
            said = log.read_text(errors="replace").strip().splitlines()
            raise click.ClickException(f"TensorBoard did not start: {said[-1] if said else ''}")
        time.sleep(0.1)


def _end(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


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
    "TensorBoard runs in the terminal in which `det tensorboard start` was called; Ctrl-C ends it.",
    *("config", "kill", "list", "logs", "ls", "open", "set"),
)
