"""Older import paths that users rely on: `check`, `storage`, `util`, `set_logger`.

What stands behind them lives elsewhere (`determined.storage`, `determined.errors`).
"""

from determined.common._logging import set_logger

__all__ = ["set_logger"]
