"""How processes of this package log."""

from __future__ import annotations

import logging

LOG_FORMAT = "%(levelname)s: [%(process)s] %(name)s: %(message)s"
"""The format of log lines, for `logging.basicConfig(format=...)`."""


def set_logger(debug_enabled: bool) -> None:
    """Log to standard error in `determined.LOG_FORMAT`, from `DEBUG` or else `INFO` upwards.

    Handlers that are there already stay, and get no second one.
    """
    logging.basicConfig(format=LOG_FORMAT)
    logging.getLogger().setLevel(logging.DEBUG if debug_enabled else logging.INFO)
