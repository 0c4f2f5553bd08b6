"""`det model`: the registry of models and their versions."""

from determined.cli.model import settings, verbs
from determined.cli.model.noun import model

__all__ = ["model", "settings", "verbs"]
