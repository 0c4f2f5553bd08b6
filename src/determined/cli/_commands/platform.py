"""Open the platform for a command, wake it if there is work to do, and close it at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from determined.errors import DeterminedError

if TYPE_CHECKING:
    from determined.platform.service import Service


@contextlib.contextmanager
def platform(*, wake: bool = True) -> Iterator[Service]:
    """Yield the service of the user's home; unfinished work gets a supervisor if it has none."""
    from determined.platform.homes.home import Home
    from determined.platform.service import Service

    service = Service(Home.find())
    try:
        warn_if_full(service)
        warn_if_copy(service)
        if wake:
            _wake(service)
        yield service
    finally:
        service.close()


def _wake(service: Service) -> None:
    """Start a supervisor if need be; if that fails, the command still reads what is there."""
    with contextlib.suppress(OSError, DeterminedError):
        service.wake_if_needed()


def warn_if_full(service: Service) -> bool:
    """Say why nothing can run when the disk is full; return whether it is."""
    is_full = service.home.is_full
    if is_full:
        click.echo(
            f"note: the disk of {service.home.path} is full: experiments wait until there is "
            "space.",
            err=True,
        )
    return is_full


def warn_if_copy(service: Service) -> None:
    """Say that a home is a copy, and how to make it a home of its own."""
    try:
        original = service.supervised.original
    except DeterminedError:  # the command itself will say what is wrong with the store
        return
    if original is not None:
        click.echo(
            f"note: {service.home.path} is a copy of the home {original}: it can be read, nothing "
            "runs in it, and nothing outside it is touched. `det store adopt` makes it a home of "
            "its own.",
            err=True,
        )
