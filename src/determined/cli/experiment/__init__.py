"""`det experiment`: everything that is done to experiments, one file per kind of verb."""

from determined.cli._continue import continue_command
from determined.cli.experiment import (
    configuration,
    create,
    describe,
    listing,
    settings,
    verbs,
    watch,
)
from determined.cli.experiment.noun import experiment

experiment.add_command(continue_command)

__all__ = [
    "configuration",
    "create",
    "describe",
    "experiment",
    "listing",
    "settings",
    "verbs",
    "watch",
]
