"""`det checkpoint`: everything that is done to checkpoints."""

from determined.cli.checkpoint import deletion, inspection
from determined.cli.checkpoint.noun import checkpoint

__all__ = ["checkpoint", "deletion", "inspection"]
