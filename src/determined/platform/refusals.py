"""What doors hear when a verb or a question is turned down."""

from __future__ import annotations

from determined.errors import DeterminedError


class RefusedError(DeterminedError):
    """The platform will not do this; the message says why."""


class NotFoundError(DeterminedError):
    """There is no such experiment, trial or checkpoint."""
