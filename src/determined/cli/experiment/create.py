"""`det experiment create`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from determined.cli._commands.errors import HELD, OK
from determined.cli._commands.options import without_effect
from determined.cli._commands.platform import platform
from determined.cli._present.layout import printable
from determined.cli._present.results import json_option, report, wants_json
from determined.cli._present.tables import size_text
from determined.cli.experiment.noun import experiment

if TYPE_CHECKING:
    from determined.config import Loaded
    from determined.platform.homes.snapshot import Snapshot
    from determined.platform.service import Service


@experiment.verb("create")
@click.argument("config_file", metavar="CONFIG")
@click.argument("model_dir", required=False, type=click.Path(path_type=Path))
@click.option(
    "-i",
    "--include",
    "includes",
    multiple=True,
    type=click.Path(path_type=Path),
    help="An additional file or folder to include.",
)
@click.option("--config", "overrides", multiple=True, metavar="KEY=VALUE", help="Set one value.")
@click.option(
    "--template",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A configuration file with defaults for CONFIG.",
)
@click.option("--project_id", "--project-id", type=int, help="The project it belongs to.")
@click.option("-f", "--follow-first-trial", is_flag=True, help="Follow the first trial's log.")
@click.option("--paused", is_flag=True, help="Do not start it yet.")
@without_effect("trials run on this machine, where ports are open", "-p/--publish")
@click.option(
    "-t",
    "--test-mode",
    "--test",
    "test_mode",
    is_flag=True,
    help="Run it on one batch, and keep nothing.",
)
@click.option(
    "--allow-host-changes",
    is_flag=True,
    help="Run a startup-hook.sh that changes this machine, such as with apt-get.",
)
@click.option("--local", is_flag=True, help="Run it in this process; with -t and `module:Class`.")
@json_option
def create(
    config_file: str,
    model_dir: Path | None,
    includes: tuple[Path, ...],
    overrides: tuple[str, ...],
    template: Path | None,
    project_id: int | None,
    follow_first_trial: bool,
    paused: bool,
    test_mode: bool,
    allow_host_changes: bool,
    local: bool,
) -> int:
    """Create an experiment and start it.

    CONFIG is a YAML file, or `-` for standard input. MODEL_DIR is the folder with the code; a copy
    of it is stored with the experiment, without the files listed in `.detignore`.

    With --follow-first-trial, the exit code is 4 if the experiment pauses itself, because trial
    after trial fails in the same way.

    With --test-mode, one trial trains, validates and saves on one batch, through the same steps as
    a real one but in a temporary home, which is then deleted. The exit code is 0 on success.
    """
    if sum((paused, follow_first_trial, test_mode)) > 1:
        raise click.UsageError("--paused, --follow-first-trial and --test-mode cannot be combined.")
    if wants_json() and (follow_first_trial or test_mode):
        raise click.UsageError(
            "--json cannot be combined with --follow-first-trial or --test-mode."
        )
    if local and not test_mode:
        raise click.UsageError("--local needs --test-mode: every experiment runs on this machine.")

    def load() -> Loaded:
        return _load(config_file, overrides, template)

    if test_mode:
        from determined.cli.experiment.test_mode import run_test, run_test_here

        if local:
            return run_test_here(load(), model_dir)
        return run_test(load, model_dir, includes, allow_host_changes)
    from determined.platform.machines import logind

    loaded = load()
    with platform() as service:
        if project_id is not None:
            _set_project(service, loaded, project_id)
        snapshot = _snapshot(service, model_dir, includes)
        is_allowed = allow_host_changes or _asked(service.host_changes(snapshot))
        original = "" if config_file == "-" else Path(config_file).read_text("utf-8", "replace")
        experiment_id = service.create(
            loaded,
            snapshot,
            model_dir,
            paused=paused,
            original_config=original,
            allow_host_changes=is_allowed,
        )
        _tell(experiment_id, snapshot, _location(loaded))
        if logind.will_kill_at_logout():
            click.echo(f"note: {logind.HINT}", err=True)
        if follow_first_trial:
            return follow(service, experiment_id)
        if wants_json():
            return OK
        if paused:
            click.echo(f"It is paused: `det experiment activate {experiment_id}` starts it.")
        elif sys.stdout.isatty():
            click.echo(f"`det experiment logs -f {experiment_id}` follows it.")
    return OK


def _load(config_file: str, overrides: tuple[str, ...], template: Path | None) -> Loaded:
    from determined.cli.experiment.configuration import load_config

    given = None if template is None else template.read_text(encoding="utf-8")
    loaded = load_config(config_file, overrides, given)
    for note in loaded.notes:
        click.echo(note.render(), err=True)
    return loaded


def _snapshot(service: Service, model_dir: Path | None, includes: tuple[Path, ...]) -> Snapshot:
    """Store the code, and tell how much it is."""
    is_quiet = wants_json()
    if not is_quiet:
        click.echo("Preparing files... ", nl=False)
        sys.stdout.flush()
    try:
        snapshot = service.take_snapshot(model_dir, includes)
    except BaseException:
        click.echo(nl=not is_quiet)
        raise
    files = "1 file" if snapshot.num_files == 1 else f"{snapshot.num_files} files"
    if not is_quiet:
        click.echo(f"{size_text(snapshot.num_bytes)} and {files}")
    for note in snapshot.notes:
        click.echo(f"note: {printable(note)}", err=True)
    return snapshot


def _tell(experiment_id: int, snapshot: Snapshot, location: str) -> None:
    report(
        f"Created experiment {experiment_id}\nCheckpoints go to {printable(location)}",
        experiment_id=experiment_id,
        checkpoints=location,
        files=snapshot.num_files,
        bytes=snapshot.num_bytes,
    )


def _asked(sentence: str) -> bool:
    """Ask at a terminal whether the machine may be changed; elsewhere the answer is no."""
    if not sentence or not sys.stdin.isatty():
        return False
    return click.confirm(f"{printable(sentence)}\nRun it?", err=True)


def _set_project(service: Service, loaded: Loaded, project_id: int) -> None:
    workspace, project = service.project_names(project_id)
    loaded.effective["workspace"], loaded.effective["project"] = workspace, project


def _location(loaded: Loaded) -> str:
    from determined.storage import build

    try:
        return build(loaded.effective["checkpoint_storage"]).location
    except Exception as error:  # told again, with its reason, when the first run starts
        return f"{loaded.effective['checkpoint_storage'].get('type')} ({error})"


def follow(service: Service, experiment_id: int) -> int:
    """Show the log of an experiment's first trial until it ends; return the exit code."""
    from determined.cli._present.following import Follower, guarded, has_paused_itself, show_outcome
    from determined.cli._present.logs import LogPrinter
    from determined.platform.queries.logs import LogFilter
    from determined.store import TrialFilter

    only = TrialFilter(experiment_id=experiment_id)
    trial = service.reader.trials(only, limit=1).rows[0]
    click.echo(f"Following first trial with ID {trial.id}")
    follower = Follower(service, experiment_id)
    printer = LogPrinter(names_trials=False, utc=False, as_json=False)

    def work() -> int:
        follower.logs(LogFilter(), printer, trial.id)
        follower.settle(trial.id)
        follower.close()
        if follower.is_over:
            show_outcome(service, experiment_id, with_traceback=False)
        else:
            click.echo(
                f"Trial {trial.id} has ended, the experiment continues: `det experiment logs -f "
                f"{experiment_id}` follows all of it."
            )
        click.echo(f"To see this log again: det trial logs {trial.id}")
        return HELD if has_paused_itself(service.experiment(experiment_id)) else OK

    return guarded(follower, f"det trial logs -f {trial.id}", work)
