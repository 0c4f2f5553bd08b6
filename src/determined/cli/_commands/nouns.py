"""The nouns of `det`. A new one is a module with a command of its name, and a line here."""

from __future__ import annotations

import click

from determined._os.printable import printable
from determined._version import __version__
from determined.cli._commands.absent import absent_nouns
from determined.cli._commands.group import Group, Lazy

_NOUNS = (
    Lazy(
        "experiment", "determined.cli.experiment", "Create, check and follow experiments.", ("e",)
    ),
    Lazy(
        "preview-search",
        "determined.cli.preview_search",
        "Show what a search will do, and its maximum cost.",
    ),
    Lazy(
        "trial",
        "determined.cli.trial",
        "Inspect, fork, replay, compare, kill and debug trials.",
        ("t",),
    ),
    Lazy(
        "checkpoint",
        "determined.cli.checkpoint",
        "Inspect, download, verify and delete checkpoints.",
        ("c",),
    ),
    Lazy("model", "determined.cli.model", "Register checkpoints as versions of models.", ("m",)),
    Lazy("workspace", "determined.cli.workspace", "Organize projects in workspaces.", ("w",)),
    Lazy("project", "determined.cli.project", "Group experiments within a workspace.", ("p",)),
    Lazy("tensorboard", "determined.cli.tensorboard", "Show trials in TensorBoard.", ("tb",)),
    Lazy(
        "job", "determined.cli.job", "Show which experiments run and which wait, in order.", ("j",)
    ),
    Lazy(
        "slot",
        "determined.cli.slot",
        "Show what the slots of this machine, or of the cluster, are used for.",
        ("s",),
    ),
    Lazy(
        "supervisor",
        "determined.cli.supervisor",
        "Manage the background process that runs experiments.",
    ),
    Lazy(
        "store",
        "determined.cli.store",
        "Disk usage, clean-up, backup, checks and rebuilding of the platform's home.",
    ),
    Lazy(
        "import",
        "determined.cli.importing",
        "Bring runs of other trackers here: TensorBoard, MLflow, trackio.",
    ),
    Lazy("export", "determined.cli.export", "Write experiments to CSV or Parquet files."),
    Lazy(
        "user", "determined.cli.user", "Show the current user; there are no other accounts.", ("u",)
    ),
    Lazy(
        "completion",
        "determined.cli.completion",
        "Print a script for shell completion of commands, options, ids and names.",
    ),
    Lazy("dashboard", "determined.cli.dashboard", "Show experiments live in a browser."),
    Lazy(
        "mcp",
        "determined.cli.mcp",
        "Serve the Model Context Protocol over standard input and output.",
    ),
    Lazy(
        "version",
        "determined.cli.version",
        "Show the versions of `det`, Python, torch and pydantic.",
    ),
)


@click.group(cls=Group, lazy=_NOUNS, name="det")
@click.version_option(
    __version__, "-v", "--version", prog_name="det", message="%(prog)s %(version)s"
)
@click.option("-u", "--user", help="Accepted and ignored: there is one user.")
@click.option(
    "-m",
    "--master",
    envvar="DET_MASTER",
    show_envvar=True,
    metavar="ADDRESS",
    help="Accepted and ignored: there is no master. Commands that destroy something refuse it.",
)
def det(user: str | None, master: str | None) -> None:
    """Train PyTorch models: experiments on this machine, with no server.

    `det help COMMAND` or `det COMMAND --help` shows more.
    """
    if master or user:
        what = f"--master {printable(master)}" if master else f"--user {printable(str(user))}"
        click.echo(
            f"note: {what} has no effect: there is no master, experiments run on this machine.",
            err=True,
        )


for _command in absent_nouns().values():
    det.add_command(_command)
