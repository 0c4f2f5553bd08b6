"""The error of a failed consistency check."""

from determined.errors import DeterminedError

__all__ = ["CheckFailedError"]


class CheckFailedError(DeterminedError):
    """Values that must agree do not."""
