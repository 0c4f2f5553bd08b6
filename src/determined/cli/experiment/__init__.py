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
from determined.cli.experiment.noun import experiment

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
