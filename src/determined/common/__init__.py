"""Older import paths that users rely on: `check`, `storage`, `util`, `set_logger`.

The implementations are elsewhere (`determined.storage`, `determined.errors`).
"""

from determined.common._logging import set_logger

__all__ = ["set_logger"]
