"""How much of the fault tests to run."""

from __future__ import annotations

import os


def factor() -> int:
    """Return `DET_TEST_FAULTS`: 1 for the short form, more for as many times the cases."""
    return max(1, int(os.environ.get("DET_TEST_FAULTS") or 1))
