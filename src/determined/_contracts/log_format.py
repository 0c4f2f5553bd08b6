"""How log lines look."""

LOG_FORMAT = "%(levelname)s: [%(process)s] %(name)s: %(message)s"
"""The format of log lines, for `logging.basicConfig(format=...)`."""
