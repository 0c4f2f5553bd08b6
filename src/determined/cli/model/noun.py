"""The noun, and the registry behind its verbs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from determined.cli._commands.group import Group
from determined.cli._commands.platform import platform

if TYPE_CHECKING:
    from determined.platform.service import Service
    from determined.platform.service.model_registry import ModelRegistry


@click.group(cls=Group, default="list")
def model() -> None:
    """Register checkpoints as versions of models."""


@contextmanager
def open_registry() -> Iterator[tuple[Service, ModelRegistry]]:
    """The registry of the home, and the service that it speaks to."""
    from determined.platform.service.model_registry import ModelRegistry

    with platform(wake=False) as service:
        yield service, ModelRegistry(service)
