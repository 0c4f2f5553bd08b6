"""Experiment configurations: YAML in; a complete, typed value or a list of all problems out.

It reads no file but the one that is loaded; the clock and randomness are arguments. Start with
`_load` (the steps in order), then `model/` (every key). What was loaded travels as one frozen value
and is read by attributes; dictionaries are for files and for JSON. Importing this package imports
neither pydantic nor yaml.
"""

from determined.config._load import Completion, Loaded, load, load_file, stored
from determined.config._mask import MASK, masked, masked_hparams
from determined.config._names import random_name
from determined.config._views import (
    environment_variables,
    schema,
    to_yaml,
    typed_hyperparameters,
)
from determined.config.messages.problems import Place, Problem
from determined.config.reading.old_forms import uses_harness

__all__ = [
    "MASK",
    "Completion",
    "Loaded",
    "Place",
    "Problem",
    "environment_variables",
    "load",
    "load_file",
    "masked",
    "masked_hparams",
    "random_name",
    "schema",
    "stored",
    "to_yaml",
    "typed_hyperparameters",
    "uses_harness",
]
