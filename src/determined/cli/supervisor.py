"""`det supervisor`: the process that runs experiments."""

from __future__ import annotations

import time
from dataclasses import asdict

import click

from determined.cli._commands.errors import ERROR, OK
from determined.cli._commands.group import Group
from determined.cli._commands.options import COUNT
from determined.cli._commands.platform import platform
from determined.cli._present.results import json_option, report
from determined.cli._present.tables import show_json

_START_SECONDS = 30.0


@click.group(cls=Group)
def supervisor() -> None:
    """Manage the background process that runs experiments."""


@supervisor.verb("status")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; null if there is none.")
def status(as_json: bool) -> int:
    """Show whether a supervisor is running; the exit code is 0 if so, else 1."""
    from determined.platform.supervisor import presence

    with platform(wake=False) as service:
        facts = presence.find(service.home)
        if as_json:
            show_json(None if facts is None else asdict(facts))
        elif facts is None:
            click.echo(f"No supervisor is running for {service.home.path}. One starts when needed.")
        else:
            slots = "1 slot" if facts.slots == 1 else f"{facts.slots} slots"
            click.echo(
                f"The supervisor of {facts.home} is running: process {facts.pid}, "
                f"version {facts.version}, {slots}."
            )
        return OK if facts is not None else ERROR


@supervisor.verb("start")
@json_option
def start() -> int:
    """Start a supervisor, unless one is running. It exits by itself when it has nothing to do."""
    from determined.platform.machines.cluster import find_cluster
    from determined.platform.supervisor import presence

    with platform(wake=False) as service:
        find_cluster(service.home)  # which says what is wrong with its settings
        facts = presence.find(service.home)
        if facts is not None:
            report(f"The supervisor is already running: process {facts.pid}.", **asdict(facts))
            return OK
        presence.start(service.home)
        deadline = time.monotonic() + _START_SECONDS
        while (facts := presence.find(service.home)) is None:
            if time.monotonic() > deadline:
                raise click.ClickException(
                    f"The supervisor did not start: see {service.home.supervisor_log}."
                )
            time.sleep(0.02)
        report(f"Started the supervisor: process {facts.pid}.", **asdict(facts))
        return OK


@supervisor.verb("stop")
@json_option
def stop() -> int:
    """Stop the supervisor. Running trials continue; the next `det` command starts a new one."""
    from determined.platform.supervisor import presence

    with platform(wake=False) as service:
        facts = presence.find(service.home)
        if facts is None:
            report("No supervisor is running.", stopped=None)
            return OK
        if not presence.stop(service.home):
            raise click.ClickException(f"The supervisor, process {facts.pid}, did not stop.")
        report("Stopped the supervisor. Running trials continue.", stopped=facts.pid)
        return OK


@supervisor.verb("logs")
@click.option("--tail", type=COUNT, metavar="N", help="Only the last N lines.")
def logs(tail: int | None) -> None:
    """Show the log of the supervisor."""
    import sys
    from collections import deque

    from determined.cli._present.layout import printable

    with platform(wake=False) as service:
        if not service.home.supervisor_log.exists():
            return
        is_terminal = sys.stdout.isatty()
        with service.home.supervisor_log.open(encoding="utf-8", errors="replace") as file:
            for line in file if tail is None else deque(file, maxlen=tail):
                click.echo(printable(line.rstrip("\n")) if is_terminal else line.rstrip("\n"))
