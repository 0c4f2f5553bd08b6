"""`det checkpoint`: everything that is done to checkpoints."""

from determined.cli.checkpoint import deletion, looking
from determined.cli.checkpoint.noun import checkpoint

__all__ = ["checkpoint", "deletion", "looking"]
