"""Find where two runs part: the batch, the stage and the tensor of the first difference.

    python -m determined.pytorch.diff CHECKPOINTS CHECKPOINTS [--json]

`_folders.py` compares the runs of two folders; on the platform, `det trial diff` does the same.
What the two processes do that train again is in `determined.pytorch.replay`.
"""

from determined.pytorch.diff._folders import diff

__all__ = ["diff"]
