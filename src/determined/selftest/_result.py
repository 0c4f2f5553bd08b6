"""What a check finds."""

from __future__ import annotations

from dataclasses import dataclass

HOLDS, FAILS, NOT_RUN = "holds", "FAILS", "not run"


class DoesNotHoldError(Exception):
    """A check looked, and what we promise is not so; the message says what is."""


class NotRunError(Exception):
    """A check cannot look here; the message says why."""


@dataclass(frozen=True)
class Result:
    """One row: what was checked, on which device, what came out, and in words."""

    check: str
    device: str
    verdict: str
    found: str
    seconds: float = 0.0
