"""The steps of a trial that a person wants to see in a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from determined.platform.queries.workloads import Workload


def notable(steps: Sequence[Workload]) -> list[Workload]:
    """Those with a validation or a checkpoint; the others have training metrics only."""
    return [s for s in steps if s.validation_time is not None or s.checkpoint is not None]


def tell_of_others(count: int) -> None:
    """Say how many steps were left out, and how to see them."""
    if count:
        what = "1 step" if count == 1 else f"{count} steps"
        click.echo(f"{what} with training metrics only: --metrics, --csv or --json shows them.")
