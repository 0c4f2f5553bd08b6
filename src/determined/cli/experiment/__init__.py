"""`det experiment`: everything that is done to experiments, one file per kind of verb."""

from determined.cli.experiment import (
    compare,
    configuration,
    create,
    deletion,
    describe,
    download,
    listing,
    settings,
    verbs,
    watch,
)
from determined.cli.experiment.continuing import continue_command
from determined.cli.experiment.noun import experiment

experiment.add_command(continue_command)

__all__ = [
    "compare",
    "configuration",
    "create",
    "deletion",
    "describe",
    "download",
    "experiment",
    "listing",
    "settings",
    "verbs",
    "watch",
]
